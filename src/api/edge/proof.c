/* The header is one line of words:
 *
 *     1 <ms> <nonce> <term> <node> <account> <session> <scopes> <control> <mac>
 *
 * The MAC covers everything before it as it stands, so that there is nothing to be read in two
 * ways; then the method, the target and the hash of the body, each on a line of its own: no request
 * that the parser lets through has a line break in the first two. It is compared in constant time
 * and before any word is believed.
 *
 * Proofs that were used are remembered until they are too old to be used again: a fixed table of
 * small buckets. Only genuine proofs get there, so that a stranger cannot fill it. A node that
 * starts anew has forgotten them, but leads, if at all, in another term. */
#include "api/edge/proof.h"

#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"

enum {
    BUCKETS = 1024,
    BUCKET_ROOM = 16,
    MAC_BYTES = crypto_auth_hmacsha256_BYTES,
    MAC_TEXT = 2 * MAC_BYTES,
    NONCE_TEXT = 2 * PROOF_NONCE_BYTES,
    WORDS = 9, /* before the MAC */
};

struct used {
    uint8_t nonce[PROOF_NONCE_BYTES];
    int64_t until_ms; /* later than this it is too old anyway: the place is free */
};

struct proofs {
    uint8_t key[crypto_auth_hmacsha256_KEYBYTES];
    pthread_mutex_t lock; /* of the table */
    struct used used[BUCKETS][BUCKET_ROOM];
};

struct proofs *proofs_new(const uint8_t secret[32])
{
    /* The context keeps this key apart from anything else that the secret is used for. */
    static const char context[] = "fantail forward 1";
    struct proofs *p = calloc(1, sizeof *p);
    CHECK(p);
    crypto_generichash(p->key, sizeof p->key, (const uint8_t *)context, sizeof context, secret, 32);
    pthread_mutex_init(&p->lock, NULL);
    return p;
}

void proofs_free(struct proofs *p)
{
    if (!p)
        return;
    pthread_mutex_destroy(&p->lock);
    sodium_memzero(p->key, sizeof p->key);
    free(p);
}

static void sign(const struct proofs *p, struct str words, const struct vouched *v,
                 uint8_t mac[MAC_BYTES])
{
    uint8_t hash[crypto_hash_sha256_BYTES];
    const struct str line_break = STR("\n");
    const struct str parts[] = {words, line_break, v->method, line_break, v->target, line_break};
    crypto_hash_sha256(hash, (const uint8_t *)v->body.ptr, v->body.len);
    crypto_auth_hmacsha256_state state;
    crypto_auth_hmacsha256_init(&state, p->key, sizeof p->key);
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        crypto_auth_hmacsha256_update(&state, (const uint8_t *)parts[i].ptr, parts[i].len);
    crypto_auth_hmacsha256_update(&state, hash, sizeof hash);
    crypto_auth_hmacsha256_final(&state, mac);
}

void proof_write(struct proofs *p, const struct vouched *v, int64_t now_ms,
                 char out[PROOF_TEXT_MAX])
{
    uint8_t nonce[PROOF_NONCE_BYTES], mac[MAC_BYTES];
    char nonce_text[NONCE_TEXT];
    randombytes_buf(nonce, sizeof nonce);
    str_hex(nonce, sizeof nonce, nonce_text);
    int n = snprintf(out, PROOF_TEXT_MAX, "1 %lld %.*s %llu %u %llu %llu %u %d", (long long)now_ms,
                     NONCE_TEXT, nonce_text, (unsigned long long)v->term, (unsigned)v->node,
                     (unsigned long long)v->caller.account, (unsigned long long)v->caller.session,
                     v->caller.scopes, v->caller.control ? 1 : 0);
    CHECK(n > 0 && n + 1 + MAC_TEXT < PROOF_TEXT_MAX);
    sign(p, (struct str){out, (size_t)n}, v, mac);
    out[n] = ' ';
    str_hex(mac, sizeof mac, out + n + 1);
    out[n + 1 + MAC_TEXT] = '\0';
}

/* ---- checking ---- */

static bool read_hex(struct str text, uint8_t *out, size_t bytes)
{
    size_t n = 0;
    return text.len == 2 * bytes &&
           sodium_hex2bin(out, bytes, text.ptr, text.len, NULL, &n, NULL) == 0 && n == bytes;
}

/* True once for each nonce as long as its proof is young enough. */
static enum err use_nonce(struct proofs *p, const uint8_t nonce[PROOF_NONCE_BYTES], int64_t at_ms,
                          int64_t now_ms, const char **why)
{
    struct used *bucket = p->used[(nonce[0] | nonce[1] << 8) % BUCKETS], *room = NULL;
    enum err e = OK;
    pthread_mutex_lock(&p->lock);
    for (size_t i = 0; i < BUCKET_ROOM && !e; i++) {
        if (bucket[i].until_ms < now_ms)
            room = &bucket[i];
        else if (memcmp(bucket[i].nonce, nonce, PROOF_NONCE_BYTES) == 0)
            e = ERR_FORBIDDEN;
    }
    if (!e && room) {
        memcpy(room->nonce, nonce, PROOF_NONCE_BYTES);
        room->until_ms = at_ms + PROOF_AGE_MS;
    }
    pthread_mutex_unlock(&p->lock);
    if (e)
        *why = "the proof was used already";
    return e ? e : room ? OK : ERR_OVERLOADED;
}

struct proof_words {
    uint64_t version, at_ms, term, node, account, session, scopes, control;
    uint8_t nonce[PROOF_NONCE_BYTES];
};

static bool read_words(struct str rest, struct proof_words *w)
{
    uint64_t *const numbers[WORDS] = {&w->version, &w->at_ms,   NULL,       &w->term,   &w->node,
                                      &w->account, &w->session, &w->scopes, &w->control};
    struct str word;
    size_t n = 0;
    for (; n < WORDS && str_split(&rest, ' ', &word); n++) {
        bool good = numbers[n] ? str_parse_u64(word, numbers[n])
                               : read_hex(word, w->nonce, sizeof w->nonce);
        if (!good)
            return false;
    }
    return n == WORDS && rest.len == 0 && w->version == 1 && w->at_ms <= INT64_MAX / 2 &&
           w->node <= UINT32_MAX && w->scopes <= UINT32_MAX && w->control <= 1;
}

enum err proof_check(struct proofs *p, struct str header, int64_t now_ms, struct vouched *v,
                     const char **why)
{
    uint8_t mac[MAC_BYTES], expected[MAC_BYTES];
    struct proof_words w = {0};
    *why = "the proof is malformed";
    if (header.len <= 1 + MAC_TEXT || header.len >= PROOF_TEXT_MAX)
        return ERR_FORBIDDEN;
    struct str words = {header.ptr, header.len - 1 - MAC_TEXT};
    if (header.ptr[words.len] != ' ' ||
        !read_hex((struct str){header.ptr + words.len + 1, MAC_TEXT}, mac, sizeof mac))
        return ERR_FORBIDDEN;
    sign(p, words, v, expected);
    if (sodium_memcmp(mac, expected, sizeof mac) != 0) {
        *why = "the proof is not of a node of ours, or of another request";
        return ERR_FORBIDDEN;
    }
    if (!read_words(words, &w))
        return ERR_FORBIDDEN;
    int64_t age_ms = now_ms - (int64_t)w.at_ms;
    if (age_ms > PROOF_AGE_MS || age_ms < -PROOF_AGE_MS) {
        *why = "the proof is of another time; do the nodes' clocks agree?";
        return ERR_FORBIDDEN;
    }
    TRY(use_nonce(p, w.nonce, (int64_t)w.at_ms, now_ms, why));
    v->caller = (struct caller){
        .account = w.account,
        .session = w.session,
        .scopes = (unsigned)w.scopes,
        .control = w.control == 1,
    };
    v->term = w.term;
    v->node = (uint32_t)w.node;
    return OK;
}
