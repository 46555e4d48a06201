/* SQLite's own page cache, but for one number.
 *
 * When a full leaf is divided and its pieces lie in the file in another order than their keys,
 * SQLite swaps the numbers of two pages in its cache, and in between calls one of them by the
 * number of the page that no file uses, the one behind 1 GiB. Its cache remembers that as the
 * greatest number it ever held, and at the next COMMIT, to drop what lies behind the end of the
 * file, walks through every page that it keeps: a third of a millisecond with 10,000 of them, for
 * nothing. In a store with random keys nearly every group of jobs divides some leaf; the walk was
 * a sixth of what a message cost.
 *
 * So the passing number is called 0, which no page has either and which lies behind no end. */
#include "db/sqlite_driver.h"

enum {
    PAGE_BYTES = 4096, /* SQLite's default; with another it is all as it was, and slower */
    LOCKED_BYTE = 0x40000000,
    UNUSED_PAGE = LOCKED_BYTE / PAGE_BYTES + 1,
};

static void (*rekey_below)(sqlite3_pcache *cache, sqlite3_pcache_page *page, unsigned from,
                           unsigned to);

static void rekey(sqlite3_pcache *cache, sqlite3_pcache_page *page, unsigned from, unsigned to)
{
    rekey_below(cache, page, from == UNUSED_PAGE ? 0 : from, to == UNUSED_PAGE ? 0 : to);
}

void cache_register(void)
{
    sqlite3_pcache_methods2 methods;
    if (sqlite3_config(SQLITE_CONFIG_GETPCACHE2, &methods) != SQLITE_OK || methods.xRekey == rekey)
        return;
    rekey_below = methods.xRekey;
    methods.xRekey = rekey;
    sqlite3_config(SQLITE_CONFIG_PCACHE2, &methods);
}
