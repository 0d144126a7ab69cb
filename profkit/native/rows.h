/* Events to rows: which table each belongs to, its names and threads by provisional codes, its arguments as numbers. */
#pragma once

#include "event.h"

/* In the order in which `columns.shared_columns` reads names and threads; `scanner.TABLES` has the names. */
enum { OPS, CALLS, SPANS, PYTHON, OVERHEAD, KERNELS, COPIES, DEVICE_SPANS, SYNC_ROWS, MTIA, MEMORY, FLOWS, N_TABLES, NO_TABLE = -1 };

/* `scanner.COLUMNS` has the names. A row has few of the numbers: those that its table lists below. */
enum {
    START, END, NAME, THREAD, DEVICE_COLUMN, GRID_COLUMN, BLOCK_COLUMN, IS_START, SIGNATURE,
    EXTERNAL_NUMBER, CORRELATION_NUMBER, STREAM_NUMBER, BYTES_NUMBER, GRAPH_NUMBER, SEQUENCE_NUMBER, FORWARD_NUMBER,
    FRAME_NUMBER, PARENT_NUMBER, MODULE_NUMBER,
    ADDRESS_NUMBER, ALLOCATED_NUMBER, RESERVED_NUMBER, DEVICE_TYPE_NUMBER, DEVICE_NUMBER, FLOW_NUMBER,
    MOST_NUMBERS = 6,
    EVENT_ID = N_ARGUMENTS, /* in the place of an argument: the event's own id */
};

/* A number of a row: its column, the argument that it is, what stands for one that is missing or none. */
typedef struct {
    int8_t column, argument, missing, none;
} source;

#define NUMBER(column, argument) {column##_NUMBER, argument, -1, -1}
#define LANE_AND_LAUNCH                                                                                                \
    NUMBER(STREAM, STREAM), NUMBER(CORRELATION, CORRELATION), NUMBER(EXTERNAL, EXTERNAL_ID), NUMBER(BYTES, N_BYTES),   \
        {GRAPH_NUMBER, GRAPH_NODE, 0, 0}
/* The numbers of each table's rows, in their order in a row; behind the last a column of 0. */
static const source numbers_of[N_TABLES][MOST_NUMBERS + 1] = {
    [OPS] = {NUMBER(EXTERNAL, EXTERNAL_ID), NUMBER(SEQUENCE, SEQUENCE), NUMBER(FORWARD, FORWARD_THREAD)},
    [CALLS] = {NUMBER(EXTERNAL, EXTERNAL_ID), NUMBER(CORRELATION, CORRELATION)},
    [PYTHON] = {NUMBER(FRAME, FRAME_ID), NUMBER(PARENT, PARENT_ID), NUMBER(MODULE, MODULE_ID)},
    [KERNELS] = {LANE_AND_LAUNCH},
    [COPIES] = {LANE_AND_LAUNCH},
    [DEVICE_SPANS] = {NUMBER(STREAM, STREAM)},
    [SYNC_ROWS] = {NUMBER(STREAM, STREAM)},
    [MTIA] = {NUMBER(STREAM, STREAM)},
    [MEMORY] = {NUMBER(ADDRESS, ADDRESS), {BYTES_NUMBER, MEMORY_BYTES, 0, -1}, NUMBER(ALLOCATED, ALLOCATED),
                NUMBER(RESERVED, RESERVED), {DEVICE_TYPE_NUMBER, DEVICE_TYPE, 0, -1}, NUMBER(DEVICE, DEVICE_ID)},
    [FLOWS] = {NUMBER(FLOW, EVENT_ID)},
};

static bool is_on_host(int table) { return table >= 0 && table <= OVERHEAD; }
static bool is_on_device(int table) { return table >= KERNELS && table <= MTIA; }

/* Rows that Python reads once more, from their text: `scanner` has the same numbers. */
enum { COLLECTIVE_KERNEL, COLLECTIVE_OPERATOR, EMBEDDING_CALL, THREAD_LABEL, COUNTER, NOT_RARE = -1 };

enum { MOST_GROUPS = 256, MOST_COLUMNS = N_TABLES * 16 };

/* What names and categories mean here, told by `scanner` when a scanner is made; NONE is that of events without one. */
enum { NAME_WITHOUT_WORK = 1, NAME_COLLECTIVE = 2, NAME_EMBEDDING = 4 };
enum { CATEGORY_ARROWS = 1, CATEGORY_FLOWS = 2, CATEGORY_COUNTERS = 4, CATEGORY_COMMON_OPS = 8, CATEGORY_NONE = 16 };

typedef struct {
    int64_t start_ns, end_ns;
    int64_t number[MOST_NUMBERS];
    int32_t grid[3], block[3];
    int32_t name, thread, device, signature;
    int32_t rare; /* place in `rares`, or NOT_RARE */
    int16_t group;
    int8_t table;
} row;

/* The events of one category and phase. */
typedef struct {
    span cat, ph;
    int category, table;
    int64_t n_events, n_rows, next; /* `next`: place of its next row in the order of tables */
} group;

typedef struct {
    int32_t kind, row; /* of `rows`, or -1 */
    span written;
} rare;

typedef struct {
    uint32_t flags;
    int8_t table;
    int16_t last_group; /* most events have the phase of the one before */
} category;


/* How the rows of a batch become tables. */
typedef struct {
    int n, n_groups, n_columns;
    int table[N_TABLES];    /* those with rows, in the order of their first group */
    size_t first[N_TABLES]; /* by table, into `order` */
    size_t n_rows[N_TABLES];
    int group[MOST_GROUPS]; /* in the order of categories, then of phases */
    int64_t column[MOST_COLUMNS][4];
} layout;

typedef struct {
    keys keys;
    table usual_names, usual_categories; /* those that mean something: by flags, categories also by their table as code */
    table categories, names, ids, threads, signatures;
    arena arena, known; /* of a batch; of what is known for all */
    row *rows;
    size_t n_rows, room_rows;
    rare *rares;
    size_t n_rares, room_rares;
    group groups[MOST_GROUPS];
    int n_groups;
    category category[MOST_GROUPS];
    uint16_t usual_category[SHAPES]; /* place + 1 of the last that looked like it */
    int64_t n_events;
    bool has_stacks, has_signatures;
    int64_t last_thread;
    value last_pid, last_tid;
    event event;
    layout layout;
    uint32_t *order;
    size_t room_order;
    uint8_t *out;
    size_t n_out, room_out;
} scanner;

static const int64_t LATEST_NS = INT64_C(1) << 61; /* `numbers.LATEST_NS` */

/* What `fields.integer` gives for text: all of it digits, or a letter first, which Python's int() refuses, and the digits
   that follow ("stream 7"). False for text of another kind. */
static bool integer_in_text(string text, int64_t *found) {
    if (text.has_escapes || text.text.n == 0 || text.text.n > 200) return false;
    const uint8_t *p = text.text.at, *end = p + text.text.n;
    uint8_t first = *p | 0x20;
    bool has_letter = first >= 'a' && first <= 'z';
    uint32_t n_digits = 0;
    int64_t value = 0;
    for (; p < end; p++) {
        if (is_digit(*p)) {
            if (++n_digits > MOST_INTEGER_DIGITS) return false;
            value = value * 10 + (*p - '0');
        } else if (!has_letter) {
            return false;
        }
    }
    *found = n_digits ? value : -1;
    return true;
}

/* A value as a whole number, `none` for null and for text without digits; false for what Python must look at. */
static inline bool integer_from(const value *value, int64_t none, int64_t *found) {
    if (value->kind == INTEGER) {
        *found = value->integer;
        return true;
    }
    *found = none;
    if (value->kind == ABSENT || value->kind == NULL_VALUE) return true;
    if (value->kind != TEXT || !integer_in_text(value->string, found)) return false;
    if (*found < 0) *found = none;
    return true;
}

static inline bool has_argument(const event *event, int i) { return event->arguments >> i & 1; }

static inline bool read_source(const event *event, const source *from, int64_t *found) {
    *found = from->missing;
    const value *given = from->argument == EVENT_ID ? &event->id : &event->argument[from->argument];
    return (from->argument != EVENT_ID && !has_argument(event, from->argument)) || integer_from(given, from->none, found);
}

/* The numbers of a row; false for what Python must look at. An external id may stand there by its old name. */
static bool read_sources(const event *event, row *row) {
    static const source old_id = NUMBER(EXTERNAL, OLD_EXTERNAL_ID);
    int64_t *number = row->number;
    for (const source *from = numbers_of[row->table]; from->column; from++, number++) {
        if (!read_source(event, from, number)) return false;
        if (from->argument == EXTERNAL_ID && *number < 0 && !read_source(event, &old_id, number)) return false;
    }
    return true;
}

/* Device and stream, which is the first of a row's numbers: from pid and tid where the arguments lack them. */
static bool read_lane(const event *event, row *row, reason *why) {
    static const source from = NUMBER(DEVICE, DEVICE);
    int64_t device;
    *why = ODD_ARGUMENT;
    if (!read_source(event, &from, &device) || (device < 0 && !integer_from(&event->pid, -1, &device))) return false;
    if (row->number[0] < 0 && !integer_from(&event->tid, -1, &row->number[0])) return false;
    *why = ODD_DEVICE;
    row->device = (int32_t)device;
    return device >= INT32_MIN && device <= INT32_MAX;
}

static int32_t size_of(int64_t value) { return value < 0 ? 0 : value > INT32_MAX ? INT32_MAX : (int32_t)value; }

/* The three sizes of a list of whole numbers or of text with three numbers in it, zeros for another count of them. */
static bool dimensions(const event *event, int i, int32_t sizes[3]) {
    sizes[0] = sizes[1] = sizes[2] = 0;
    if (!has_argument(event, i) || event->argument[i].kind == NULL_VALUE) return true;
    const value *given = &event->argument[i];
    int32_t found[3];
    uint8_t usual[2] = {0, 0};
    int n = 0;
    if (given->kind == TEXT) {
        span text = given->string.text;
        if (given->string.has_escapes || text.n > 200) return false;
        for (uint32_t at = 0; at < text.n; n++) {
            while (at < text.n && !is_digit(text.at[at])) {
                if (text.at[at++] >= 0x80) return false;
            }
            uint64_t value;
            uint32_t first = at;
            at = (uint32_t)(read_digits(text.at + first, text.at + text.n, &value, usual) - text.at);
            if (at == first) break;
            if (at - first > MOST_INTEGER_DIGITS) return false;
            if (n < 3) found[n] = size_of((int64_t)value);
        }
    } else {
        const uint8_t *p = given->written.at, *end = p + given->written.n;
        if (given->kind != OTHER || *p != '[') return false;
        p = after_space(p + 1, end);
        while (*p != ']') {
            number number;
            int64_t size;
            p = read_number(p, end, &number, usual);
            if (!p || !integer_of(&number, &size)) return false;
            if (n < 3) found[n] = size_of(size);
            n++;
            p = after_space(p, end);
            if (*p == ',') p = after_space(p + 1, end);
        }
    }
    if (n == 3) memcpy(sizes, found, sizeof found);
    return true;
}

static const uint64_t SIGNATURE_ARGUMENTS =
    UINT64_C(1) << INPUT_DIMS | UINT64_C(1) << INPUT_TYPES | UINT64_C(1) << INPUT_STRIDES | UINT64_C(1) << CONCRETE_INPUTS;

static span told_argument(const event *event, int i) { return has_argument(event, i) ? event->argument[i].written : (span){NULL, 0}; }

/* Note what was recorded of an operator's arguments, for those that work. */
static bool read_signature(scanner *s, const event *event, row *row, uint32_t name_flags) {
    bool is_new;
    s->has_stacks |= has_argument(event, CALL_STACK);
    s->has_signatures |= has_argument(event, INPUT_DIMS);
    if (name_flags & NAME_WITHOUT_WORK) return true;
    if (!(event->arguments & SIGNATURE_ARGUMENTS)) return true;
    span part[MOST_PARTS] = {told_argument(event, INPUT_DIMS), told_argument(event, INPUT_TYPES),
                             told_argument(event, INPUT_STRIDES), told_argument(event, CONCRETE_INPUTS)};
    int64_t place = table_place(&s->signatures, part, MOST_PARTS, &is_new);
    row->signature = (int32_t)place;
    return place >= 0;
}

/* The arguments that a row's table is made from; false, with the reason, where Python must look at them. */
static bool read_row(scanner *s, const event *event, row *row, uint32_t name_flags, reason *why) {
    *why = ODD_ARGUMENT;
    if (!read_sources(event, row)) return false;
    if (is_on_device(row->table) && !read_lane(event, row, why)) return false;
    *why = ODD_ARGUMENT;
    if (row->table == KERNELS && !(dimensions(event, GRID, row->grid) && dimensions(event, BLOCK, row->block))) return false;
    *why = TOO_MANY;
    return row->table != OPS || read_signature(s, event, row, name_flags);
}

/* The code of an id among the batch's ids that are text, the number itself of one that is a number. */
static bool id_part(scanner *s, const value *id, int64_t part[2]) {
    part[0] = id->kind == INTEGER ? 1 : id->kind == TEXT ? 2 : 0;
    part[1] = id->kind == INTEGER ? id->integer : 0;
    if (id->kind != TEXT) return true;
    span text;
    bool is_new;
    if (!unescaped(id->string, &s->arena, &text)) return false;
    part[1] = table_place(&s->ids, &text, 1, &is_new);
    return part[1] >= 0;
}

static bool is_last(const value *one, const value *last) {
    return one->kind == last->kind && (one->kind == INTEGER ? one->integer == last->integer : one->kind != TEXT || same(one->string.text, last->string.text));
}

/* The provisional code of (pid, tid), -1 without memory. */
static int64_t thread_of(scanner *s, const event *event) {
    if (s->last_thread >= 0 && is_last(&event->pid, &s->last_pid) && is_last(&event->tid, &s->last_tid)) return s->last_thread;
    int64_t parts[4];
    if (!id_part(s, &event->pid, parts) || !id_part(s, &event->tid, parts + 2)) return -1;
    uint8_t *key = arena_take(&s->arena, sizeof parts);
    if (!key) return -1;
    memcpy(key, parts, sizeof parts);
    bool is_new;
    span text = {key, sizeof parts};
    s->last_thread = table_place(&s->threads, &text, 1, &is_new);
    s->last_pid = event->pid;
    s->last_tid = event->tid;
    return s->last_thread;
}

/* The provisional code of a name and what it means; -1 without memory. */
static int64_t name_of(scanner *s, const event *event, uint32_t *flags) {
    span text = {NULL, 0};
    bool is_new;
    if (has_member(event, MEMBER_NAME) && !unescaped(event->name, &s->arena, &text)) return -1;
    int64_t place = table_place_text(&s->names, text, &is_new);
    if (place < 0) return -1;
    if (is_new) {
        const entry *known = table_entry(&s->usual_names, text);
        s->names.entries[place].flags = known ? known->flags : 0;
    }
    *flags = s->names.entries[place].flags;
    return place;
}

static bool is_named(scanner *s, const event *event, const char *name) {
    span text = {NULL, 0}, wanted = {(const uint8_t *)name, (uint32_t)strlen(name)};
    return has_member(event, MEMBER_NAME) && unescaped(event->name, &s->arena, &text) && same(text, wanted);
}

static bool noted_as_rare(scanner *s, const event *event, int kind, int64_t row) {
    if (!grown((void **)&s->rares, &s->room_rares, s->n_rares + 1, sizeof(rare))) return false;
    s->rares[s->n_rares++] = (rare){kind, (int32_t)row, event->written};
    return true;
}

/* The category of an event by its place among those of the batch; -1 for one that Python must look at. */
static int category_of(scanner *s, const event *event, reason *why) {
    span text = {NULL, 0};
    bool is_new;
    *why = ODD_MEMBER;
    if (has_member(event, MEMBER_CAT)) {
        text = event->cat.text;
        if (event->cat.has_escapes || text.n == 0) return -1;
    }
    uint16_t *usual = &s->usual_category[text.n ? (text.n + text.at[0] + text.at[text.n - 1]) % SHAPES : 0];
    if (*usual && same(s->categories.entries[*usual - 1].part[0], text)) return *usual - 1;
    int64_t place = table_place(&s->categories, &text, 1, &is_new);
    *why = TOO_MANY;
    if (place < 0 || place >= MOST_GROUPS) return -1;
    *usual = (uint16_t)(place + 1);
    if (is_new) {
        const entry *known = table_entry(&s->usual_categories, text);
        category *fresh = &s->category[place];
        fresh->flags = text.n ? known ? known->flags : 0 : CATEGORY_NONE;
        fresh->table = (int8_t)(known ? known->code : NO_TABLE);
        fresh->last_group = -1;
    }
    return (int)place;
}

static int table_of_phase(const category *category, span ph) {
    if (ph.n != 1 || category->flags & CATEGORY_ARROWS) return NO_TABLE;
    if (*ph.at == 'X') return category->table;
    if (*ph.at == 'i') return MEMORY;
    return category->flags & CATEGORY_FLOWS && (*ph.at == 's' || *ph.at == 'f') ? FLOWS : NO_TABLE;
}

/* The group of an event; NULL for one that Python must look at. */
static group *group_of(scanner *s, const event *event, reason *why) {
    int place = category_of(s, event, why);
    if (place < 0) return NULL;
    category *category = &s->category[place];
    *why = ODD_MEMBER;
    span ph = event->ph.text;
    if (!(has_member(event, MEMBER_PH)) || event->ph.has_escapes || ph.n == 0) return NULL;
    if (category->flags & CATEGORY_ARROWS) ph = (span){(const uint8_t *)"s", 1};
    if (category->last_group >= 0 && same(s->groups[category->last_group].ph, ph)) return &s->groups[category->last_group];
    int i = 0;
    while (i < s->n_groups && !(s->groups[i].category == place && same(s->groups[i].ph, ph))) i++;
    if (i == s->n_groups) {
        *why = TOO_MANY;
        if (i == MOST_GROUPS) return NULL;
        s->groups[s->n_groups++] = (group){s->categories.entries[place].part[0], ph, place, table_of_phase(category, ph), 0, 0, 0};
    }
    category->last_group = (int16_t)i;
    return &s->groups[i];
}

/* Which of the rare rows an operator or a kernel is. */
static int rare_kind(const event *event, const category *category, int table, uint32_t name_flags) {
    if (table == KERNELS && has_argument(event, COLLECTIVE) && event->argument[COLLECTIVE].kind != NULL_VALUE) return COLLECTIVE_KERNEL;
    if (table == OPS && name_flags & NAME_COLLECTIVE) return category->flags & CATEGORY_COMMON_OPS ? COLLECTIVE_OPERATOR : NOT_RARE;
    return table == OPS && name_flags & NAME_EMBEDDING && has_argument(event, INPUT_DIMS) ? EMBEDDING_CALL : NOT_RARE;
}

/* Times, name and thread of a row, as far as its table has them. */
static bool read_range(scanner *s, const event *event, row *row, uint32_t *name_flags, reason *why) {
    *why = ODD_TIME;
    row->start_ns = row->end_ns = has_member(event, MEMBER_TS) ? event->ts_ns : 0;
    if (row->start_ns > LATEST_NS || row->start_ns < -LATEST_NS) return false;
    *why = TOO_MANY;
    if (is_on_host(row->table) || is_on_device(row->table)) {
        int64_t duration = has_member(event, MEMBER_DUR) ? event->dur_ns : 0;
        int64_t name = name_of(s, event, name_flags);
        if (name < 0) return false;
        row->name = (int32_t)name;
        *why = ODD_TIME;
        if (duration < 0 || duration > LATEST_NS) return false;
        row->end_ns += duration;
    }
    if (!is_on_device(row->table)) {
        int64_t thread = thread_of(s, event);
        *why = TOO_MANY;
        if (thread < 0) return false;
        row->thread = (int32_t)thread;
    }
    return true;
}

/* Take an event that was just read; false, with the reason, for one that Python must look at. */
static bool take_event(scanner *s, const event *event, reason *why) {
    group *group = group_of(s, event, why);
    if (!group) return false;
    const category *category = &s->category[group->category];
    uint8_t ph = *event->ph.text.at;
    s->n_events++;
    group->n_events++;
    *why = NO_MEMORY;
    if (group->table == NO_TABLE) {
        *why = OLD_SPELLING; /* of the autograd profiler's own export */
        if (category->flags & CATEGORY_NONE && ph == 'X' && event->pid.kind == TEXT) return false;
        *why = NO_MEMORY;
        if (event->ph.text.n != 1) return true;
        if (category->flags & CATEGORY_NONE && ph == 'M' && is_named(s, event, "thread_name")) return noted_as_rare(s, event, THREAD_LABEL, -1);
        return !(category->flags & CATEGORY_COUNTERS && ph == 'C') || noted_as_rare(s, event, COUNTER, -1);
    }
    if (group->table == MEMORY && !is_named(s, event, "[memory]")) return true;
    if (s->n_rows >= INT32_MAX || !grown((void **)&s->rows, &s->room_rows, s->n_rows + 1, sizeof(row))) return false;
    row *row = &s->rows[s->n_rows];
    uint32_t name_flags = 0;
    row->table = (int8_t)group->table;
    row->group = (int16_t)(group - s->groups);
    row->signature = -1;
    row->rare = NOT_RARE;
    if (!read_range(s, event, row, &name_flags, why) || !read_row(s, event, row, name_flags, why)) return false;
    *why = OLD_SPELLING;
    if (row->table == OPS && name_flags & NAME_COLLECTIVE && !(category->flags & CATEGORY_COMMON_OPS)) return false;
    int kind = rare_kind(event, category, row->table, name_flags);
    *why = NO_MEMORY;
    if (kind != NOT_RARE) {
        row->rare = (int32_t)s->n_rares;
        if (!noted_as_rare(s, event, kind, (int64_t)s->n_rows)) return false;
    }
    s->n_rows++;
    group->n_rows++;
    return true;
}
