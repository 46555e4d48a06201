/* The backlog over time as a field of characters: one mark for the relay, a letter for each
 * consumer. A curve that rises or falls by more than a row between two columns gets a stroke of the
 * same mark, so that it stays a line. Where curves meet, the later consumer shows: the legend names
 * them in that order, so a missing curve lies under a later one. */
#include <string.h>

#include "plan/plan.h"

enum { COLUMNS = 66, ROWS = 12, LABEL = 9 };

struct field {
    char cells[ROWS][COLUMNS + 1]; /* row 0 is the top one */
    double top;                    /* the value of the uppermost row's upper edge */
    double end_s;                  /* the time of the last column */
};

/* Series 0 is the relay, then the consumers. */
static double value_at(const struct plan *p, size_t series, double t_s)
{
    return series == 0 ? capacity_relay_backlog_at(&p->question, t_s)
                       : capacity_backlog_at(&p->question, &p->consumers[series - 1].question, t_s);
}

/* The curve after the stall depends on drain rates; without them it is not drawn. */
static bool is_known(const struct plan *p, size_t series)
{
    return p->drain_known && (series == 0 || p->consumers[series - 1].drain_known);
}

static char mark_of(size_t series)
{
    return series == 0 ? '*' : (char)('a' + series - 1);
}

/* Until the last series that recovers has, with some room; if one never does, at least until the
 * plot shows that. */
static double end_of(const struct plan *p)
{
    double stall_s = p->question.stall_s, longest_s = 0;
    bool never = false;
    for (size_t series = 0; series <= p->consumer_count; series++) {
        double s = series == 0 ? p->relay.recovery_s : p->consumers[series - 1].answer.recovery_s;
        if (!is_known(p, series))
            continue;
        never = never || s < 0;
        longest_s = s > longest_s ? s : longest_s;
    }
    if (never && longest_s < stall_s)
        longest_s = stall_s;
    double end_s = (stall_s + longest_s) * 1.05;
    return end_s > 1 ? end_s : 1;
}

static int row_of(const struct field *f, double value)
{
    int row = ROWS - 1 - (int)(value / f->top * ROWS);
    return row < 0 ? 0 : row;
}

static void draw_series(struct field *f, const struct plan *p, size_t series)
{
    int before = -1;
    for (int column = 0; column < COLUMNS; column++) {
        double t_s = f->end_s * column / (COLUMNS - 1);
        if (t_s > p->question.stall_s && !is_known(p, series))
            break;
        double value = value_at(p, series, t_s);
        if (value <= 0) {
            before = before >= 0 ? ROWS : -1; /* the axis itself is drawn below the field */
            continue;
        }
        int row = row_of(f, value), from = row, to = row;
        if (before >= 0 && before < row)
            from = before + 1;
        else if (before > row)
            to = before - 1;
        for (int r = from; r <= to; r++)
            f->cells[r][column] = mark_of(series);
        before = row;
    }
}

static void draw_axis(const struct field *f, const struct plan *p, FILE *out)
{
    char axis[COLUMNS + 1], text[PLAN_TEXT_MAX], ends[PLAN_TEXT_MAX];
    memset(axis, '-', COLUMNS);
    axis[COLUMNS] = '\0';
    int stall = (int)(p->question.stall_s / f->end_s * (COLUMNS - 1) + 0.5);
    axis[stall] = '|';
    fprintf(out, "%*s +%s\n", LABEL, "0", axis);
    /* the end of the stall under its mark as far as it fits, the end of the axis flush right when
     * there is room for both */
    int end_length = (int)strlen(plan_print_span(f->end_s, ends));
    int stall_length = (int)strlen(plan_print_span(p->question.stall_s, text));
    int start = stall + stall_length <= COLUMNS ? stall : COLUMNS - stall_length;
    int left = COLUMNS - end_length - start - stall_length;
    fprintf(out, "%*s%s", LABEL + 2 + start, "", text);
    if (left >= 2)
        fprintf(out, "%*s%s", left, "", ends);
    fputc('\n', out);
}

void plan_plot(const struct plan *p, FILE *out)
{
    struct field f = {.end_s = end_of(p)};
    char text[PLAN_TEXT_MAX];
    size_t count = p->consumer_count + 1;
    for (size_t s = 0; s < count; s++) { /* each curve is highest at the stall's end or its own */
        double at_stall = value_at(p, s, p->question.stall_s);
        double at_end = is_known(p, s) ? value_at(p, s, f.end_s) : 0;
        f.top = at_stall > f.top ? at_stall : f.top;
        f.top = at_end > f.top ? at_end : f.top;
    }
    if (f.top <= 0) {
        fprintf(out, "nothing waits at any time: there is nothing to plot\n");
        return;
    }
    for (int row = 0; row < ROWS; row++)
        memset(f.cells[row], ' ', COLUMNS);
    for (size_t s = 0; s < count; s++)
        draw_series(&f, p, s);
    for (int row = 0; row < ROWS; row++) {
        bool labelled = row % 4 == 0;
        size_t length = COLUMNS;
        while (length > 0 && f.cells[row][length - 1] == ' ')
            length--;
        fprintf(out, "%*s |%.*s\n", LABEL,
                labelled ? plan_print_count(f.top * (ROWS - row) / ROWS, text) : "", (int)length,
                f.cells[row]);
    }
    draw_axis(&f, p, out);
    int column = fprintf(out, "%*s  * relay", LABEL, "");
    for (size_t i = 0; i < p->consumer_count; i++) {
        int length = (int)strlen(p->consumers[i].name) + 4;
        if (column + length > LABEL + COLUMNS + 2) {
            fputc('\n', out);
            column = fprintf(out, "%*s", LABEL, "");
        }
        column += fprintf(out, "  %c %s", mark_of(i + 1), p->consumers[i].name);
    }
    fputc('\n', out);
}
