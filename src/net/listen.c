/* Making sockets. Paths of unix sockets may be longer than the 107 bytes that an address holds
 * (data folders of tests and containers are): they are then reached through their folder's
 * descriptor. */
#include "net/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { WHY_MAX = 200 };

static const char *reason(int error)
{
    return error == EADDRINUSE ? "address in use" : strerror(error);
}

static struct addrinfo *resolve(const char *host, uint16_t port, char why[WHY_MAX])
{
    char service[8];
    snprintf(service, sizeof service, "%u", (unsigned)port);
    const struct addrinfo wanted = {.ai_family = AF_UNSPEC,
                                    .ai_socktype = SOCK_STREAM,
                                    .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    int r = getaddrinfo(host, service, &wanted, &found);
    if (r != 0) {
        snprintf(why, WHY_MAX, "cannot listen on %.100s: %s", host, gai_strerror(r));
        return NULL;
    }
    return found;
}

static uint16_t port_of(int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } bound = {0};
    socklen_t len = sizeof bound;
    if (getsockname(fd, &bound.any, &len) != 0)
        return 0;
    return ntohs(bound.any.sa_family == AF_INET6 ? bound.v6.sin6_port : bound.v4.sin_port);
}

int listen_tcp(const char *host, uint16_t *port, bool shared, char why[WHY_MAX])
{
    struct addrinfo *address = resolve(host, *port, why);
    if (!address)
        return -1;
    const int on = 1, off = 0;
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        goto failed;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (shared && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) != 0)
        goto failed;
    if (address->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    /* Accepted sockets inherit it, which saves a call for each. */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (bind(fd, address->ai_addr, address->ai_addrlen) != 0 || listen(fd, LISTEN_BACKLOG) != 0)
        goto failed;
    freeaddrinfo(address);
    *port = port_of(fd);
    return fd;

failed:
    snprintf(why, WHY_MAX, "cannot listen on %.100s port %u: %s", host, (unsigned)*port,
             reason(errno));
    freeaddrinfo(address);
    if (fd >= 0)
        close(fd);
    return -1;
}

bool listen_tcp_is_free(const char *host, uint16_t port, char why[WHY_MAX])
{
    int fd = listen_tcp(host, &port, false, why);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* Fills `address` for `path`. *folder_fd must stay open while the address is used; -1 when it needs
 * none. False with errno. */
static bool unix_address(const char *path, struct sockaddr_un *address, int *folder_fd)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    *folder_fd = -1;
    size_t len = strlen(path);
    if (len < sizeof address->sun_path) {
        memcpy(address->sun_path, path, len + 1);
        return true;
    }
    const char *name = strrchr(path, '/');
    char folder[4096];
    if (!name || (size_t)(name - path) >= sizeof folder) {
        errno = ENAMETOOLONG;
        return false;
    }
    memcpy(folder, path, (size_t)(name - path));
    folder[name - path] = '\0';
    *folder_fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (*folder_fd < 0)
        return false;
    int n = snprintf(address->sun_path, sizeof address->sun_path, "/proc/self/fd/%d%s", *folder_fd,
                     name);
    if (n < 0 || (size_t)n >= sizeof address->sun_path) {
        close(*folder_fd);
        *folder_fd = -1;
        errno = ENAMETOOLONG;
        return false;
    }
    return true;
}

int connect_unix(const char *path)
{
    struct sockaddr_un address;
    int folder_fd;
    if (!unix_address(path, &address, &folder_fd))
        return -1;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        int error = errno;
        close(fd);
        errno = error;
        fd = -1;
    }
    if (folder_fd >= 0)
        close(folder_fd);
    return fd;
}

/* Removes the socket file of an earlier server. False: a server listens on it. */
static bool clear_path(const char *path)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return true;
    if (!S_ISSOCK(st.st_mode)) {
        errno = EEXIST;
        return false;
    }
    int fd = connect_unix(path);
    if (fd >= 0 || (errno != ECONNREFUSED && errno != ENOENT)) {
        if (fd >= 0)
            close(fd);
        errno = EADDRINUSE;
        return false;
    }
    return unlink(path) == 0 || errno == ENOENT;
}

int listen_unix(const char *path, char why[WHY_MAX])
{
    struct sockaddr_un address;
    int folder_fd = -1, fd = -1;
    if (!clear_path(path) || !unix_address(path, &address, &folder_fd))
        goto failed;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* The mode is set before the file exists, so that other users never have access. */
    if (fd < 0 || fchmod(fd, 0600) != 0 ||
        bind(fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(fd, LISTEN_BACKLOG) != 0)
        goto failed;
    if (folder_fd >= 0)
        close(folder_fd);
    return fd;

failed:
    snprintf(why, WHY_MAX, "cannot listen on %.120s: %s", path, reason(errno));
    if (folder_fd >= 0)
        close(folder_fd);
    if (fd >= 0)
        close(fd);
    return -1;
}
