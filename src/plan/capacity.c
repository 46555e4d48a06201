/* The arithmetic of stalls.
 *
 * A stall begins with an empty backlog, at t = 0, and lasts T seconds. Events come in at I a second
 * all the time. The relay takes min(s, I) a second during the stall and R afterwards. A consumer
 * gets p deliveries of each event and takes at most d a second.
 *
 * A consumer's backlog is counted from the truth, not from the deliveries that reached it: p × the
 * relay's backlog, plus the deliveries it was given and has not taken. That is what its users
 * notice. One of the two always decides: either the consumer works without a pause, at d, or it has
 * taken all it was given and waits for the relay. So after the stall its backlog is
 *
 *     B(u) = max( p × relay backlog(u),  B(0) - (d - I×p) × u )
 *
 * and it has recovered at max(the relay's time, B(0) / (d - I×p)), whichever order its two backlogs
 * empty in.
 *
 * A rate that only just keeps up never reduces a backlog, and one that does not keep up falls
 * behind without any stall: both are "never", unless, for the first, the backlog was empty. */
#include "plan/capacity.h"

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double time_to_clear(double backlog, double net)
{
    if (net < 0 || (net == 0 && backlog > 0))
        return -1;
    return backlog > 0 ? backlog / net : 0;
}

void capacity_relay(const struct capacity_question *q, struct capacity_answer *out)
{
    out->growth = larger(q->inflow - q->stall_drain, 0);
    out->backlog = out->growth * q->stall_s;
    out->net = q->relay_drain - q->inflow;
    out->recovery_s = time_to_clear(out->backlog, out->net);
}

/* How fast its backlog grows during the stall. */
static double stall_growth(const struct capacity_question *q, const struct capacity_consumer *c)
{
    double given = smaller(q->stall_drain, q->inflow) * c->per_event;
    return q->inflow * c->per_event - smaller(given, c->drain);
}

void capacity_consumer(const struct capacity_question *q, const struct capacity_consumer *c,
                       struct capacity_consumer_answer *out)
{
    struct capacity_answer relay;
    capacity_relay(q, &relay);
    out->inflow = q->inflow * c->per_event;
    out->growth = stall_growth(q, c);
    out->backlog = out->growth * q->stall_s;
    out->net = smaller(c->drain, q->relay_drain * c->per_event) - out->inflow;
    double own = time_to_clear(out->backlog, c->drain - out->inflow);
    bool ever = own >= 0 && relay.recovery_s >= 0;
    out->recovery_s = ever ? larger(own, relay.recovery_s) : -1;
    out->dedup_entries = out->inflow * c->dedup_days * 86400;
    out->dedup_bytes = out->dedup_entries * c->bytes_per_entry;
}

double capacity_relay_backlog_at(const struct capacity_question *q, double t_s)
{
    struct capacity_answer relay;
    capacity_relay(q, &relay);
    if (t_s <= q->stall_s)
        return relay.growth * larger(t_s, 0);
    return larger(relay.backlog - relay.net * (t_s - q->stall_s), 0);
}

double capacity_backlog_at(const struct capacity_question *q, const struct capacity_consumer *c,
                           double t_s)
{
    double growth = stall_growth(q, c);
    if (t_s <= q->stall_s)
        return growth * larger(t_s, 0);
    double net = c->drain - q->inflow * c->per_event;
    double busy = growth * q->stall_s - net * (t_s - q->stall_s);
    return larger(larger(busy, capacity_relay_backlog_at(q, t_s) * c->per_event), 0);
}
