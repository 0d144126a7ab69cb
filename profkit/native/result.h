/* The rows of a batch as one block of bytes, which `scanner.py` takes apart: a header of int64 with the place and the count
   of each section, then the values of columns, then the sections. All but texts lie on multiples of 8.

       groups        int64: events of each category and phase
       tables        int64[2]: table, rows; in the order of the batch
       columns       int64[4]: table, column, place in bytes, bytes of an item
       threads       int64[4]: kind and number of pid, kind and number of tid (0 none, 1 number, 2 place among the ids)
       rares         int64[4]: kind, place in its table, place and size in the batch's text
       names, ids    text, a NUL behind each
       labels        text: category and phase of each group, a NUL behind each
       signatures    text: four parts, a NUL between, a byte 1 behind each four; no JSON has either
*/
#pragma once

#include "rows.h"

enum { GROUPS, TABLES, COLUMNS, THREADS, RARES, NAMES, IDS, LABELS, SIGNATURES, N_SECTIONS };
enum { H_EVENTS, H_HAS_STACKS, H_SECTIONS, N_HEADER = H_SECTIONS + 2 * N_SECTIONS };

static uint8_t *out_take(scanner *s, size_t n) {
    size_t room = (n + 7) & ~(size_t)7;
    if (!grown((void **)&s->out, &s->room_out, s->n_out + room, 1)) return NULL;
    uint8_t *place = s->out + s->n_out;
    memset(place + n, 0, room - n); /* a block is a function of its text alone */
    s->n_out += room;
    return place;
}

static void tell(scanner *s, int at, int64_t word) { memcpy(s->out + (size_t)at * 8, &word, 8); }

/* Begin a section of so many bytes at the end of the block. */
static uint8_t *section(scanner *s, int which, size_t n_bytes) {
    size_t at = s->n_out;
    uint8_t *place = out_take(s, n_bytes);
    if (!place) return NULL;
    tell(s, H_SECTIONS + 2 * which, (int64_t)at);
    tell(s, H_SECTIONS + 2 * which + 1, (int64_t)n_bytes);
    return place;
}

static uint8_t *put_words(uint8_t *to, int n, const int64_t words[]) {
    memcpy(to, words, (size_t)n * 8);
    return to + (size_t)n * 8;
}

static uint8_t *put_text(uint8_t *to, span text, uint8_t behind) {
    if (text.n) memcpy(to, text.at, text.n);
    to[text.n] = behind;
    return to + text.n + 1;
}

/* Give each group of a table the places of its rows; of arrows the starts come first, whichever the file has first. */
static size_t placed_groups(scanner *s, const layout *layout, int table, size_t next) {
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < layout->n_groups; i++) {
            group *group = &s->groups[layout->group[i]];
            int own_pass = table == FLOWS && *group->ph.at == 'f';
            if (group->table != table || own_pass != pass) continue;
            group->next = (int64_t)next;
            next += (size_t)group->n_rows;
        }
    }
    return next;
}

/* Groups in the order in which Python has them, tables in that of their first group, and the rows of each table. */
static bool laid_out(scanner *s, layout *layout) {
    memset(layout, 0, sizeof *layout);
    for (size_t place = 0; place < s->categories.n; place++)
        for (int i = 0; i < s->n_groups; i++)
            if (s->groups[i].category == (int)place) layout->group[layout->n_groups++] = i;
    for (int i = 0; i < layout->n_groups; i++) {
        const group *group = &s->groups[layout->group[i]];
        if (group->n_rows == 0) continue;
        if (layout->n_rows[group->table] == 0) layout->table[layout->n++] = group->table;
        layout->n_rows[group->table] += (size_t)group->n_rows;
    }
    size_t next = 0;
    for (int t = 0; t < layout->n; t++) {
        layout->first[layout->table[t]] = next;
        next = placed_groups(s, layout, layout->table[t], next);
    }
    if (!grown((void **)&s->order, &s->room_order, s->n_rows + 1, sizeof *s->order)) return false;
    for (size_t i = 0; i < s->n_rows; i++) s->order[s->groups[s->rows[i].group].next++] = (uint32_t)i;
    return true;
}

static int32_t code_of(table *table, int32_t place, int32_t *n) {
    entry *entry = &table->entries[place];
    if (entry->code < 0) entry->code = (*n)++;
    return entry->code;
}

/* Give names, threads and signatures their codes, in the order in which Python meets them. */
static void coded(scanner *s, const layout *layout) {
    int32_t n_names = 0, n_threads = 0, n_signatures = 0;
    for (int table = 0; table < N_TABLES; table++) {
        if (layout->n_rows[table] == 0) continue; /* without any rows there is no order to point into */
        const uint32_t *order = s->order + layout->first[table];
        for (size_t i = 0; i < layout->n_rows[table]; i++) {
            row *row = &s->rows[order[i]];
            if (is_on_host(table) || is_on_device(table)) row->name = code_of(&s->names, row->name, &n_names);
            if (!is_on_device(table)) row->thread = code_of(&s->threads, row->thread, &n_threads);
            if (row->signature >= 0) row->signature = code_of(&s->signatures, row->signature, &n_signatures);
        }
    }
}

/* Begin a column: the room of its values, which is noted for the section of columns. */
static uint8_t *column(scanner *s, layout *layout, int table, int which, size_t size) {
    size_t at = s->n_out;
    uint8_t *values = layout->n_columns < MOST_COLUMNS ? out_take(s, layout->n_rows[table] * size) : NULL;
    if (!values) return NULL;
    int64_t *told = layout->column[layout->n_columns++];
    told[0] = table;
    told[1] = which;
    told[2] = (int64_t)at;
    told[3] = (int64_t)size;
    return values;
}

/* Write one member of all rows of a table, in their order. */
#define PUT(which, size, ...)                                                                                          \
    do {                                                                                                               \
        uint8_t *values = column(s, layout, table, which, size);                                                       \
        if (!values) return false;                                                                                     \
        for (size_t i = 0; i < n; i++) memcpy(values + i * (size), &s->rows[order[i]].__VA_ARGS__, size);             \
    } while (0)

static bool is_told(const scanner *s, const uint32_t *order, size_t n, int place) {
    for (size_t i = 0; i < n; i++)
        if (s->rows[order[i]].number[place] != -1) return true;
    return false;
}

static bool put_numbers(scanner *s, layout *layout, int table) {
    const uint32_t *order = s->order + layout->first[table];
    size_t n = layout->n_rows[table];
    for (int place = 0; numbers_of[table][place].column; place++) {
        int which = numbers_of[table][place].column;
        if (which >= SEQUENCE_NUMBER && which <= MODULE_NUMBER && !is_told(s, order, n, place)) continue;
        PUT(which, 8, number[place]);
    }
    return true;
}

static bool put_table(scanner *s, layout *layout, int table) {
    const uint32_t *order = s->order + layout->first[table];
    size_t n = layout->n_rows[table];
    bool is_host = is_on_host(table), is_device = is_on_device(table);
    PUT(START, 8, start_ns);
    if (is_host || is_device) {
        PUT(END, 8, end_ns);
        PUT(NAME, 4, name);
    }
    if (!is_device) PUT(THREAD, 4, thread);
    if (is_device) PUT(DEVICE_COLUMN, 4, device);
    if (!put_numbers(s, layout, table)) return false;
    if (table == KERNELS) {
        PUT(GRID_COLUMN, 12, grid);
        PUT(BLOCK_COLUMN, 12, block);
    }
    if (table == OPS && s->has_signatures && s->signatures.n) PUT(SIGNATURE, 4, signature);
    if (table == FLOWS) {
        uint8_t *values = column(s, layout, table, IS_START, 1);
        if (!values) return false;
        for (size_t i = 0; i < n; i++) values[i] = *s->groups[s->rows[order[i]].group].ph.at == 's';
    }
    return true;
}

static bool put_groups(scanner *s, const layout *layout) {
    size_t n_bytes = 0;
    uint8_t *to = section(s, GROUPS, (size_t)layout->n_groups * 8);
    if (!to) return false;
    for (int i = 0; i < layout->n_groups; i++) {
        const group *group = &s->groups[layout->group[i]];
        to = put_words(to, 1, &group->n_events);
        n_bytes += (size_t)group->cat.n + group->ph.n + 2;
    }
    if (!(to = section(s, LABELS, n_bytes))) return false;
    for (int i = 0; i < layout->n_groups; i++) {
        const group *group = &s->groups[layout->group[i]];
        to = put_text(put_text(to, group->cat, 0), group->ph, 0);
    }
    return true;
}

static bool put_tables(scanner *s, const layout *layout) {
    uint8_t *to = section(s, TABLES, (size_t)layout->n * 16);
    if (!to) return false;
    for (int t = 0; t < layout->n; t++) to = put_words(to, 2, (int64_t[]){layout->table[t], (int64_t)layout->n_rows[layout->table[t]]});
    if (!(to = section(s, COLUMNS, (size_t)layout->n_columns * 32))) return false;
    for (int i = 0; i < layout->n_columns; i++) to = put_words(to, 4, layout->column[i]);
    return true;
}

static bool put_rares(scanner *s, const layout *layout, const uint8_t *text) {
    uint8_t *to = section(s, RARES, s->n_rares * 32);
    if (!to) return false;
    for (size_t i = 0; i < s->n_rares; i++) {
        const rare *rare = &s->rares[i];
        if (rare->row < 0) to = put_words(to, 4, (int64_t[]){rare->kind, -1, rare->written.at - text, rare->written.n});
    }
    for (int table = OPS; table <= KERNELS; table += KERNELS - OPS) {
        for (size_t i = 0; i < layout->n_rows[table]; i++) {
            int32_t place = s->rows[s->order[layout->first[table] + i]].rare;
            if (place < 0) continue;
            const rare *rare = &s->rares[place];
            to = put_words(to, 4, (int64_t[]){rare->kind, (int64_t)i, rare->written.at - text, rare->written.n});
        }
    }
    return true;
}

/* The entries of a table by their codes, in `order`, which is free by now. */
static bool by_code(scanner *s, const table *table) {
    if (!grown((void **)&s->order, &s->room_order, table->n, sizeof *s->order)) return false;
    for (size_t i = 0; i < table->n; i++) s->order[table->entries[i].code < 0 ? (int32_t)i : table->entries[i].code] = (uint32_t)i;
    return true;
}

/* The texts of a table, each of so many parts, with a NUL between parts and `behind` behind each text. */
static bool put_texts(scanner *s, const table *table, int which, int n_parts, uint8_t behind) {
    size_t n_bytes = 0;
    if (!by_code(s, table)) return false;
    for (size_t i = 0; i < table->n; i++)
        for (int part = 0; part < n_parts; part++) n_bytes += (size_t)table->entries[i].part[part].n + 1;
    uint8_t *to = section(s, which, n_bytes);
    if (!to) return false;
    for (size_t i = 0; i < table->n; i++)
        for (int part = 0; part < n_parts; part++)
            to = put_text(to, table->entries[s->order[i]].part[part], part == n_parts - 1 ? behind : 0);
    return true;
}

static bool put_threads(scanner *s) {
    uint8_t *to = by_code(s, &s->threads) ? section(s, THREADS, s->threads.n * 32) : NULL;
    if (!to) return false;
    for (size_t i = 0; i < s->threads.n; i++) memcpy(to + i * 32, s->threads.entries[s->order[i]].part[0].at, 32);
    return true;
}

/* Write the block of a batch that was taken whole; false without memory. */
static bool put_result(scanner *s, const uint8_t *text) {
    layout *layout = &s->layout;
    s->n_out = 0;
    if (!laid_out(s, layout)) return false;
    coded(s, layout);
    uint8_t *header = out_take(s, N_HEADER * 8);
    if (!header) return false;
    memset(header, 0, N_HEADER * 8);
    tell(s, H_EVENTS, s->n_events);
    tell(s, H_HAS_STACKS, s->has_stacks);
    for (int t = 0; t < layout->n; t++)
        if (!put_table(s, layout, layout->table[t])) return false;
    return put_groups(s, layout) && put_tables(s, layout) && put_rares(s, layout, text) &&
           put_texts(s, &s->names, NAMES, 1, 0) && put_texts(s, &s->ids, IDS, 1, 0) &&
           (!s->has_signatures || put_texts(s, &s->signatures, SIGNATURES, MOST_PARTS, 1)) && put_threads(s);
}
