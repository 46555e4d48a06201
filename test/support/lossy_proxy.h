/* A TCP proxy on loopback that loses what a test says: for answers that never come. One thread. */
#pragma once

#include <stdbool.h>

enum proxy_loss {
    PROXY_LOSES_NOTHING,
    PROXY_LOSES_THE_ANSWER,  /* the message arrives; when its answer comes both sides are cut */
    PROXY_LOSES_THE_MESSAGE, /* both sides are cut instead of passing it on */
    PROXY_LOSES_THE_CLIENT   /* the client is cut; the server receives nothing more */
};

struct lossy_proxy;

struct lossy_proxy *lossy_proxy_new(int server_port);
void lossy_proxy_free(struct lossy_proxy *p);
int lossy_proxy_port(const struct lossy_proxy *p);

/* The next `times` messages of clients in which `word` occurs meet this loss. */
void lossy_proxy_lose(struct lossy_proxy *p, enum proxy_loss loss, const char *word, int times);
int lossy_proxy_lost(struct lossy_proxy *p); /* how many did so far */
/* New connections are cut at once; with `cut` the present ones too. */
void lossy_proxy_refuse(struct lossy_proxy *p, bool refuse, bool cut);
