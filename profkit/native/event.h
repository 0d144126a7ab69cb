/* One element of traceEvents: its members, and those arguments that the structs of `kineto/arguments.py` read. */
#pragma once

#include "text.h"

/* Why a batch is left to the Python reader. `scanner.REASONS` has the words, in this order. */
typedef enum {
    ACCEPTED,
    MALFORMED,
    NOT_UTF8,
    NO_OBJECT,
    ODD_KEY,
    REPEATED_KEY,
    ODD_MEMBER,
    ODD_ARGUMENT,
    ODD_TIME,
    ODD_DEVICE,
    OLD_SPELLING,
    TOO_MANY,
    NO_MEMORY,
} reason;

/* The arguments that profkit reads, by their keys: those of the structs of `kineto/arguments.py`, which a test compares. */
#define ARGUMENTS(KEY)                                                                                                 \
    KEY(EXTERNAL_ID, "External id") KEY(CORRELATION, "correlation") KEY(DEVICE, "device") KEY(STREAM, "stream")        \
    KEY(GRID, "grid") KEY(BLOCK, "block") KEY(N_BYTES, "bytes") KEY(GRAPH_NODE, "graph node id")                       \
    KEY(OLD_EXTERNAL_ID, "external id") KEY(COLLECTIVE, "Collective name") KEY(MEMORY_BYTES, "Bytes")                  \
    KEY(ADDRESS, "Addr") KEY(ALLOCATED, "Total Allocated") KEY(RESERVED, "Total Reserved")                             \
    KEY(DEVICE_TYPE, "Device Type") KEY(DEVICE_ID, "Device Id") KEY(SEQUENCE, "Sequence number")                       \
    KEY(FORWARD_THREAD, "Fwd thread id") KEY(FRAME_ID, "Python id") KEY(PARENT_ID, "Python parent id")                 \
    KEY(MODULE_ID, "Python module id") KEY(INPUT_DIMS, "Input Dims") KEY(INPUT_TYPES, "Input type")                    \
    KEY(INPUT_STRIDES, "Input Strides") KEY(CONCRETE_INPUTS, "Concrete Inputs") KEY(CALL_STACK, "Call stack")          \
    KEY(DTYPE, "dtype") KEY(IN_ELEMENTS, "In msg nelems") KEY(OUT_ELEMENTS, "Out msg nelems")                          \
    KEY(GROUP_SIZE, "Group size") KEY(GROUP_NAME, "Process Group Name") KEY(GROUP_RANKS, "Process Group Ranks")        \
    KEY(SEQ, "Seq") KEY(SOURCE_RANK, "Src Rank") KEY(TARGET_RANK, "Dst Rank") KEY(LABEL, "name")                       \
    KEY(TOKENS, "tokens") KEY(PADDED_TOKENS, "padded_tokens") KEY(SAMPLES, "samples")

#define AS_NAME(name, text) name,
#define AS_TEXT(name, text) text,
enum { ARGUMENTS(AS_NAME) N_ARGUMENTS };
static const char *const argument_keys[N_ARGUMENTS] = {ARGUMENTS(AS_TEXT)};

/* A value that may be a whole number or text; what is neither is known by its text alone. */
typedef enum { ABSENT, NULL_VALUE, INTEGER, TEXT, OTHER } kind;

typedef struct {
    kind kind;
    int64_t integer;
    string string;
    span written;
} value;

/* What is read of an event; OTHER_MEMBER stands for any other. */
enum { OTHER_MEMBER, MEMBER_PH, MEMBER_CAT, MEMBER_NAME, MEMBER_PID, MEMBER_TID, MEMBER_TS, MEMBER_DUR, MEMBER_ARGS, MEMBER_ID };
enum { MOST_OTHER_MEMBERS = 24, KEY_SLOTS = 256 };

typedef struct {
    span written;
    unsigned members;      /* a bit for each MEMBER_... that was there */
    bool has_args;         /* and they are not null */
    uint64_t arguments;    /* a bit for each argument that was there; the others are not set */
    string name, cat, ph;  /* set where the member is there, as ts_ns and dur_ns */
    value pid, tid, id;    /* always set */
    int64_t ts_ns, dur_ns;
    value argument[N_ARGUMENTS];
    span other[MOST_OTHER_MEMBERS];
    int n_others;
} event;

static inline bool has_member(const event *event, unsigned member) { return event->members >> member & 1; }

/* What stood at this place in the event before, from behind the comma or the brace to the value: most events have the
   keys of the one before, and to compare is less work than to read. */
enum { MOST_EXPECTED = 16, MOST_EXPECTED_BYTES = 64, SHAPES = 32, PHASES = 8 };

typedef struct {
    span key;            /* without bytes: nothing is expected */
    int what;            /* a MEMBER_..., or an argument */
    uint8_t n_digits[2]; /* of its last number, before and after the point */
    span text;           /* of a category: its last, with the quotes */
} expected;

typedef struct {
    uint8_t place[KEY_SLOTS]; /* of an argument + 1, by the hash of its key */
    uint8_t length[N_ARGUMENTS];
    expected member[1 + PHASES][MOST_EXPECTED]; /* before the phase, and by what it looks like: arrows lie between calls */
    expected argument[SHAPES][MOST_EXPECTED]; /* by what the category looks like */
} keys;

/* What the events of one batch expect of each other; their texts go with it. */
static void forget_expected(keys *keys) {
    memset(keys->member, 0, sizeof keys->member);
    memset(keys->argument, 0, sizeof keys->argument);
}

static inline bool stands_at(span text, const uint8_t *p, const uint8_t *end) {
    return text.n && end - p >= MOST_EXPECTED_BYTES && same_bytes(text.at, p, text.n);
}

/* What to expect of the next event: nothing where it is too long to compare. */
static inline span to_expect(const uint8_t *start, const uint8_t *behind) {
    return (span){start, behind - start <= MOST_EXPECTED_BYTES ? (uint32_t)(behind - start) : 0};
}

static inline unsigned key_slot(const uint8_t *p, uint32_t n) {
    return (p[0] * 7u + p[n - 1] * 31u + p[n / 2] * 3u + n * 13u) & (KEY_SLOTS - 1);
}

static void keys_fill(keys *keys) {
    memset(keys, 0, sizeof *keys);
    for (int i = 0; i < N_ARGUMENTS; i++) {
        keys->length[i] = (uint8_t)strlen(argument_keys[i]);
        unsigned slot = key_slot((const uint8_t *)argument_keys[i], keys->length[i]);
        while (keys->place[slot]) slot = (slot + 1) & (KEY_SLOTS - 1);
        keys->place[slot] = (uint8_t)(i + 1);
    }
}

static inline int argument_of(const keys *keys, span key) {
    if (key.n == 0) return -1;
    for (unsigned slot = key_slot(key.at, key.n); keys->place[slot]; slot = (slot + 1) & (KEY_SLOTS - 1)) {
        int i = keys->place[slot] - 1;
        if (keys->length[i] == key.n && memcmp(argument_keys[i], key.at, key.n) == 0) return i;
    }
    return -1;
}

static inline const uint8_t *read_value(const uint8_t *p, const uint8_t *end, value *found, uint8_t *usual) {
    const uint8_t *start = p;
    number number;
    found->kind = OTHER;
    if (p == end) return NULL;
    const uint8_t *behind = read_plain(p, end, &found->integer, usual);
    if (behind) {
        p = behind;
        found->kind = INTEGER;
    } else if (*p == '"') {
        p = read_string(p + 1, end, &found->string);
        found->kind = TEXT;
    } else if (*p == '-' || is_digit(*p)) {
        p = read_number(p, end, &number, usual);
        if (p && integer_of(&number, &found->integer)) {
            found->kind = INTEGER;
        } else if (p && (number.has_exponent || !number.n_decimals)) {
            return NULL; /* Python holds it, or refuses to: that is not decided here */
        }
    } else if (*p == 'n') {
        p = after_word(p, end, "null", 4);
        found->kind = NULL_VALUE;
    } else {
        p = after_value(p, end, true);
    }
    if (!p || p - start > UINT32_MAX) return NULL;
    found->written = (span){start, (uint32_t)(p - start)};
    return p;
}

static inline const uint8_t *read_time(const uint8_t *p, const uint8_t *end, int64_t *found, uint8_t *usual) {
    number number;
    const uint8_t *behind = read_plain_time(p, end, found, usual);
    if (behind) return behind;
    return (p = read_number(p, end, &number, usual)) && nanoseconds_of(&number, found) ? p : NULL;
}

static const uint8_t *refused(reason why, reason *told) {
    *told = why;
    return NULL;
}

/* From before a key to its value. */
static inline const uint8_t *read_key(const uint8_t *p, const uint8_t *end, string *key, reason *why) {
    p = after_space(p, end);
    if (p == end || *p != '"' || !(p = read_string(p + 1, end, key))) return refused(MALFORMED, why);
    if (key->has_escapes) return refused(ODD_KEY, why);
    p = after_space(p, end);
    if (p == end || *p != ':') return refused(MALFORMED, why);
    return after_space(p + 1, end);
}

/* Behind a member, at the next key or behind the object's end; `is_over` tells which. */
static inline const uint8_t *after_member(const uint8_t *p, const uint8_t *end, bool *is_over, reason *why) {
    p = after_space(p, end);
    if (p == end || (*p != ',' && *p != '}')) return refused(MALFORMED, why);
    *is_over = *p == '}';
    return p + 1;
}

/* The argument of the key at p, -1 for one that is not read; p is left at its value. */
static inline bool next_argument(const uint8_t **p, const uint8_t *end, const keys *keys, expected *next, int *i, reason *why) {
    string key;
    const uint8_t *start = *p;
    if (stands_at(next->key, start, end)) {
        *p = after_space(start + next->key.n, end);
        *i = next->what;
        return true;
    }
    if (!(*p = read_key(start, end, &key, why))) return false;
    *i = argument_of(keys, key.text);
    *next = (expected){.key = to_expect(start, *p), .what = *i};
    return true;
}

static const uint8_t *read_arguments(const uint8_t *p, const uint8_t *end, keys *keys, event *event, reason *why) {
    bool is_over;
    int i, place = 0;
    span cat = has_member(event, MEMBER_CAT) ? event->cat.text : (span){NULL, 0};
    expected *shape = keys->argument[cat.n ? (cat.n + *cat.at) % SHAPES : 0], other;
    const uint8_t *first = after_space(p + 1, end);
    if (first < end && *first == '}') return first + 1;
    p++;
    do {
        expected *next = &shape[place++];
        if (place > MOST_EXPECTED) {
            other = (expected){.what = 0};
            next = &other;
        }
        if (!next_argument(&p, end, keys, next, &i, why)) return NULL;
        if (i < 0) {
            p = after_unread(p, end, next->n_digits);
        } else if (event->arguments >> i & 1) {
            return refused(REPEATED_KEY, why);
        } else {
            event->arguments |= UINT64_C(1) << i;
            p = read_value(p, end, &event->argument[i], next->n_digits);
        }
        if (!p) return refused(ODD_ARGUMENT, why);
        if (!(p = after_member(p, end, &is_over, why))) return NULL;
    } while (!is_over);
    return p;
}

static inline unsigned member_of(span key) {
    const uint8_t *p = key.at;
    switch (key.n) {
    case 2:
        if (p[0] == 'p' && p[1] == 'h') return MEMBER_PH;
        if (p[0] == 't' && p[1] == 's') return MEMBER_TS;
        return p[0] == 'i' && p[1] == 'd' ? MEMBER_ID : OTHER_MEMBER;
    case 3:
        if (memcmp(p, "cat", 3) == 0) return MEMBER_CAT;
        if (memcmp(p, "pid", 3) == 0) return MEMBER_PID;
        if (memcmp(p, "tid", 3) == 0) return MEMBER_TID;
        return memcmp(p, "dur", 3) == 0 ? MEMBER_DUR : OTHER_MEMBER;
    case 4:
        return memcmp(p, "name", 4) == 0 ? MEMBER_NAME : memcmp(p, "args", 4) == 0 ? MEMBER_ARGS : OTHER_MEMBER;
    default:
        return OTHER_MEMBER;
    }
}

static const uint8_t *read_id(const uint8_t *p, const uint8_t *end, value *found, uint8_t *usual) {
    p = read_value(p, end, found, usual);
    return p && found->kind != OTHER ? p : NULL;
}

static const uint8_t *read_text(const uint8_t *p, const uint8_t *end, string *found) {
    return p < end && *p == '"' ? read_string(p + 1, end, found) : NULL;
}

/* Note a member that profkit does not read; false if it stands there twice, or if there are too many to compare. */
static bool noted(event *event, span key) {
    if (event->n_others == MOST_OTHER_MEMBERS) return false;
    for (int i = 0; i < event->n_others; i++)
        if (same(event->other[i], key)) return false;
    event->other[event->n_others++] = key;
    return true;
}

/* The category: mostly that of the event before. */
static const uint8_t *read_category(const uint8_t *p, const uint8_t *end, string *found, expected *next) {
    if (stands_at(next->text, p, end)) {
        *found = (string){{next->text.at + 1, next->text.n - 2}, false};
        return p + next->text.n;
    }
    const uint8_t *start = p;
    p = read_text(p, end, found);
    if (p && !found->has_escapes) next->text = to_expect(start, p);
    return p;
}

/* The phase: mostly one letter. */
static const uint8_t *read_phase(const uint8_t *p, const uint8_t *end, string *found) {
    if (end - p < 3 || p[0] != '"' || p[2] != '"' || p[1] < 0x20 || p[1] == '"' || p[1] == '\\') return read_text(p, end, found);
    *found = (string){{p + 1, 1}, false};
    return p + 3;
}

/* What to expect behind a phase. */
static inline expected *shape_of(keys *keys, span ph) {
    return keys->member[1 + (ph.n ? *ph.at % PHASES : 0)];
}

/* Read an event from its brace to behind its last; NULL, with the reason, for one that Python must look at.
   `unique_keys`: also no member that profkit does not read may stand there twice. */
static const uint8_t *read_event(const uint8_t *p, const uint8_t *end, keys *keys, bool unique_keys, event *event, reason *why) {
    bool is_over = false;
    int place = 0;
    expected *shape = keys->member[0], other;
    const uint8_t *start = p++;
    event->members = 0;
    event->has_args = false;
    event->arguments = 0;
    event->n_others = 0;
    event->pid.kind = event->tid.kind = event->id.kind = ABSENT;
    const uint8_t *first = after_space(p, end);
    if (first < end && *first == '}') {
        is_over = true;
        p = first + 1;
    }
    while (!is_over) {
        unsigned member;
        string key = {{NULL, 0}, false};
        expected *next = &shape[place++];
        if (place > MOST_EXPECTED) {
            other = (expected){.what = 0};
            next = &other;
        }
        if (stands_at(next->key, p, end)) {
            member = (unsigned)next->what;
            p = after_space(p + next->key.n, end);
        } else {
            first = p;
            if (!(p = read_key(p, end, &key, why))) return NULL;
            member = member_of(key.text);
            *next = (expected){.key = to_expect(first, p), .what = (int)member};
            if (!member && unique_keys) next->key.n = 0; /* its text is needed each time */
        }
        if (member && has_member(event, member)) return refused(REPEATED_KEY, why);
        event->members |= 1u << member;
        reason wrong = ODD_MEMBER;
        switch (member) {
        case MEMBER_PH:
            p = read_phase(p, end, &event->ph);
            if (p) shape = shape_of(keys, event->ph.text);
            break;
        case MEMBER_CAT: p = read_category(p, end, &event->cat, next); break;
        case MEMBER_NAME: p = read_text(p, end, &event->name); break;
        case MEMBER_PID: p = read_id(p, end, &event->pid, next->n_digits); break;
        case MEMBER_TID: p = read_id(p, end, &event->tid, next->n_digits); break;
        case MEMBER_ID: p = read_id(p, end, &event->id, next->n_digits); break;
        case MEMBER_TS:
        case MEMBER_DUR:
            wrong = ODD_TIME;
            p = read_time(p, end, member == MEMBER_TS ? &event->ts_ns : &event->dur_ns, next->n_digits);
            break;
        case MEMBER_ARGS:
            if (p < end && *p == '{') {
                if (!(p = read_arguments(p, end, keys, event, why))) return NULL;
                event->has_args = true;
            } else {
                p = after_word(p, end, "null", 4);
            }
            break;
        default:
            if (unique_keys && !noted(event, key.text)) return refused(REPEATED_KEY, why);
            p = after_unread(p, end, next->n_digits);
        }
        if (!p) return refused(wrong, why);
        if (!(p = after_member(p, end, &is_over, why))) return NULL;
    }
    if (p - start > UINT32_MAX) return refused(TOO_MANY, why);
    event->written = (span){start, (uint32_t)(p - start)};
    return p;
}
