/* One element of traceEvents: its members, and those arguments that the structs of `kineto/arguments.py` read. */
#pragma once

#include "text.h"

/* Why a batch is left to the Python reader. `decode.REASONS` has the words, in this order. */
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

enum { MEMBER_PH = 1, MEMBER_CAT = 2, MEMBER_NAME = 4, MEMBER_PID = 8, MEMBER_TID = 16, MEMBER_TS = 32, MEMBER_DUR = 64, MEMBER_ARGS = 128, MEMBER_ID = 256 };
enum { MOST_OTHER_MEMBERS = 24, KEY_SLOTS = 256 };

typedef struct {
    span written;
    unsigned members;      /* MEMBER_..., those that were there */
    bool has_args;         /* and they are not null */
    uint64_t arguments;    /* a bit for each argument that was there; the others are not set */
    string name, cat, ph;  /* set where the member is there, as ts_ns and dur_ns */
    value pid, tid, id;    /* always set */
    int64_t ts_ns, dur_ns;
    value argument[N_ARGUMENTS];
    span other[MOST_OTHER_MEMBERS];
    int n_others;
} event;

/* A key as it stood at its place in the event before, from its first quote to its colon: most events have those of the
   one before, and to compare is less work than to read. */
enum { MOST_EXPECTED = 16, MOST_EXPECTED_BYTES = 32, SHAPES = 32 };

typedef struct {
    const uint8_t *at;
    uint32_t n; /* 0: nothing is expected */
    int what;   /* a MEMBER_..., or an argument */
} expected;

typedef struct {
    uint8_t place[KEY_SLOTS]; /* of an argument + 1, by the hash of its key */
    uint8_t length[N_ARGUMENTS];
    expected member[MOST_EXPECTED];
    expected argument[SHAPES][MOST_EXPECTED]; /* by what the category looks like */
} keys;

/* What the events of one batch expect of each other; their texts go with it. */
static void forget_expected(keys *keys) {
    memset(keys->member, 0, sizeof keys->member);
    memset(keys->argument, 0, sizeof keys->argument);
}

static inline bool is_expected(const expected *key, const uint8_t *p, const uint8_t *end) {
    if (end - p < MOST_EXPECTED_BYTES || key->n == 0) return false;
    if (key->n < 8) return memcmp(key->at, p, 4) == 0 && memcmp(key->at + key->n - 4, p + key->n - 4, 4) == 0;
    if (key->n <= 16) return load64(key->at) == load64(p) && load64(key->at + key->n - 8) == load64(p + key->n - 8);
    return memcmp(key->at, p, key->n) == 0;
}

static inline void expect(expected *key, const uint8_t *start, const uint8_t *behind, int what) {
    ptrdiff_t n = behind - start;
    *key = (expected){start, n >= 4 && n <= MOST_EXPECTED_BYTES ? (uint32_t)n : 0, what};
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

static inline const uint8_t *read_value(const uint8_t *p, const uint8_t *end, value *found) {
    const uint8_t *start = p;
    number number;
    found->kind = OTHER;
    if (p == end) return NULL;
    if (*p == '"') {
        p = read_string(p + 1, end, &found->string);
        found->kind = TEXT;
    } else if (*p == '-' || is_digit(*p)) {
        p = read_number(p, end, &number);
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

static inline const uint8_t *read_time(const uint8_t *p, const uint8_t *end, int64_t *found) {
    number number;
    return (p = read_number(p, end, &number)) && nanoseconds_of(&number, found) ? p : NULL;
}

static const uint8_t *refused(reason why, reason *told) {
    *told = why;
    return NULL;
}

/* From a key's first quote to behind its colon. */
static inline const uint8_t *read_key(const uint8_t *p, const uint8_t *end, string *key, reason *why) {
    if (p == end || *p != '"' || !(p = read_string(p + 1, end, key))) return refused(MALFORMED, why);
    if (key->has_escapes) return refused(ODD_KEY, why);
    p = after_space(p, end);
    if (p == end || *p != ':') return refused(MALFORMED, why);
    return p + 1;
}

/* Behind a member, at the next key or behind the object's end; `is_over` tells which. */
static inline const uint8_t *after_member(const uint8_t *p, const uint8_t *end, bool *is_over, reason *why) {
    p = after_space(p, end);
    if (p == end || (*p != ',' && *p != '}')) return refused(MALFORMED, why);
    *is_over = *p == '}';
    return p + 1;
}

/* The argument of the key at p, -1 for one that is not read; p is left behind the colon. */
static inline bool next_argument(const uint8_t **p, const uint8_t *end, const keys *keys, expected *next, int *i, reason *why) {
    string key;
    const uint8_t *start = *p;
    if (next && is_expected(next, start, end)) {
        *p += next->n;
        *i = next->what;
        return true;
    }
    if (!(*p = read_key(start, end, &key, why))) return false;
    *i = argument_of(keys, key.text);
    if (next) expect(next, start, *p, *i);
    return true;
}

static const uint8_t *read_arguments(const uint8_t *p, const uint8_t *end, keys *keys, event *event, reason *why) {
    bool is_over;
    int i, place = 0;
    span cat = event->members & MEMBER_CAT ? event->cat.text : (span){NULL, 0};
    expected *next = keys->argument[cat.n ? (cat.n + *cat.at) % SHAPES : 0];
    p = after_space(p + 1, end);
    if (p < end && *p == '}') return p + 1;
    do {
        p = after_space(p, end);
        if (!next_argument(&p, end, keys, place < MOST_EXPECTED ? next + place : NULL, &i, why)) return NULL;
        place++;
        p = after_space(p, end);
        if (i < 0) {
            p = after_value(p, end, false);
        } else if (event->arguments >> i & 1) {
            return refused(REPEATED_KEY, why);
        } else {
            event->arguments |= UINT64_C(1) << i;
            p = read_value(p, end, &event->argument[i]);
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
        return p[0] == 'i' && p[1] == 'd' ? MEMBER_ID : 0;
    case 3:
        if (memcmp(p, "cat", 3) == 0) return MEMBER_CAT;
        if (memcmp(p, "pid", 3) == 0) return MEMBER_PID;
        if (memcmp(p, "tid", 3) == 0) return MEMBER_TID;
        return memcmp(p, "dur", 3) == 0 ? MEMBER_DUR : 0;
    case 4:
        return memcmp(p, "name", 4) == 0 ? MEMBER_NAME : memcmp(p, "args", 4) == 0 ? MEMBER_ARGS : 0;
    default:
        return 0;
    }
}

static const uint8_t *read_id(const uint8_t *p, const uint8_t *end, value *found) {
    p = read_value(p, end, found);
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

/* Read an event from its brace to behind its last; NULL, with the reason, for one that Python must look at.
   `unique_keys`: also no member that profkit does not read may stand there twice. */
static const uint8_t *read_event(const uint8_t *p, const uint8_t *end, keys *keys, bool unique_keys, event *event, reason *why) {
    bool is_over = false;
    int place = 0;
    const uint8_t *start = p;
    event->members = 0;
    event->has_args = false;
    event->arguments = 0;
    event->n_others = 0;
    event->pid.kind = event->tid.kind = event->id.kind = ABSENT;
    p = after_space(p + 1, end);
    if (p < end && *p == '}') {
        is_over = true;
        p++;
    }
    while (!is_over) {
        unsigned member;
        span key;
        expected *next = place < MOST_EXPECTED ? &keys->member[place++] : NULL;
        p = after_space(p, end);
        if (next && is_expected(next, p, end)) {
            member = (unsigned)next->what;
            key = (span){p, next->n};
            p += next->n;
        } else {
            string text;
            const uint8_t *first = p;
            if (!(p = read_key(p, end, &text, why))) return NULL;
            key = text.text;
            member = member_of(key);
            if (next && member) expect(next, first, p, (int)member);
        }
        p = after_space(p, end);
        if (event->members & member) return refused(REPEATED_KEY, why);
        event->members |= member;
        reason wrong = ODD_MEMBER;
        switch (member) {
        case MEMBER_PH: p = read_text(p, end, &event->ph); break;
        case MEMBER_CAT: p = read_text(p, end, &event->cat); break;
        case MEMBER_NAME: p = read_text(p, end, &event->name); break;
        case MEMBER_PID: p = read_id(p, end, &event->pid); break;
        case MEMBER_TID: p = read_id(p, end, &event->tid); break;
        case MEMBER_ID: p = read_id(p, end, &event->id); break;
        case MEMBER_TS:
        case MEMBER_DUR:
            wrong = ODD_TIME;
            p = read_time(p, end, member == MEMBER_TS ? &event->ts_ns : &event->dur_ns);
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
            if (unique_keys && !noted(event, key)) return refused(REPEATED_KEY, why);
            p = after_value(p, end, false);
        }
        if (!p) return refused(wrong, why);
        if (!(p = after_member(p, end, &is_over, why))) return NULL;
    }
    if (p - start > UINT32_MAX) return refused(TOO_MANY, why);
    event->written = (span){start, (uint32_t)(p - start)};
    return p;
}
