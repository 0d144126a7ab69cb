/* Memory that one batch after the other uses again: arrays that grow, bytes that never move, and a table of texts. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Make room for `wanted` items of `size` bytes; false without memory, and then nothing has changed. */
static bool grown(void **items, size_t *room, size_t wanted, size_t size) {
    if (wanted <= *room) return true;
    size_t next = *room ? *room : 64;
    while (next < wanted) {
        if (next > SIZE_MAX / 2) return false;
        next *= 2;
    }
    if (next > SIZE_MAX / size) return false;
    void *moved = realloc(*items, next * size);
    if (!moved) return false;
    *items = moved;
    *room = next;
    return true;
}

/* Bytes whose places do not change: blocks, of which all but the first go at the end of a batch. */
typedef struct block {
    struct block *before;
    size_t used, room;
    uint8_t bytes[];
} block;

typedef struct {
    block *last;
} arena;

static uint8_t *arena_take(arena *arena, size_t n) {
    block *last = arena->last;
    if (!last || last->room - last->used < n) {
        size_t room = n > 65536 ? n : 65536;
        if (room > SIZE_MAX - sizeof(block)) return NULL;
        block *fresh = malloc(sizeof(block) + room);
        if (!fresh) return NULL;
        fresh->before = last;
        fresh->used = 0;
        fresh->room = room;
        arena->last = last = fresh;
    }
    uint8_t *place = last->bytes + last->used;
    last->used += n;
    return place;
}

static void arena_clear(arena *arena, bool keep_one) {
    while (arena->last && (!keep_one || arena->last->before)) {
        block *before = arena->last->before;
        free(arena->last);
        arena->last = before;
    }
    if (arena->last) arena->last->used = 0;
}

static inline uint64_t load64(const uint8_t *p) {
    uint64_t word;
    memcpy(&word, p, 8);
    return word;
}

static inline uint32_t load32(const uint8_t *p) {
    uint32_t word;
    memcpy(&word, p, 4);
    return word;
}

static inline uint64_t mixed(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ (hash >> 29);
}

static inline uint64_t hash_of(const uint8_t *p, size_t n, uint64_t hash) {
    hash = mixed(hash, n);
    if (n >= 8) { /* the last eight bytes may be some of those before */
        for (size_t i = 0; i + 8 < n; i += 8) hash = mixed(hash, load64(p + i));
        hash = mixed(hash, load64(p + n - 8));
    } else if (n >= 4) {
        hash = mixed(hash, load32(p) | (uint64_t)load32(p + n - 4) << 32);
    } else if (n) {
        hash = mixed(hash, p[0] | (uint64_t)p[n / 2] << 8 | (uint64_t)p[n - 1] << 16);
    }
    /* Slots are taken by the lowest bits, and a product's know nothing of the last bytes of a word ("node 17"). */
    hash = (hash ^ (hash >> 33)) * UINT64_C(0xFF51AFD7ED558CCD);
    return hash ^ (hash >> 33);
}

/* A text of the batch or of the arena. */
typedef struct {
    const uint8_t *at;
    uint32_t n;
} span;

/* Whether two texts of n bytes are the same: most are short, and no call is worth their while. */
static inline bool same_bytes(const uint8_t *one, const uint8_t *other, uint32_t n) {
    if (n < 4) {
        for (uint32_t i = 0; i < n; i++)
            if (one[i] != other[i]) return false;
        return true;
    }
    if (n < 8) return load32(one) == load32(other) && load32(one + n - 4) == load32(other + n - 4);
    if (n <= 16) return load64(one) == load64(other) && load64(one + n - 8) == load64(other + n - 8);
    if (n > 32) return memcmp(one, other, n) == 0;
    return load64(one) == load64(other) && load64(one + 8) == load64(other + 8) &&
           load64(one + n - 16) == load64(other + n - 16) && load64(one + n - 8) == load64(other + n - 8);
}

static inline bool same(span one, span other) { return one.n == other.n && same_bytes(one.at, other.at, one.n); }

/* What is coded in order of first sight: texts of up to four parts (a name has one). `code` is given at the end of the
   batch, in the order of tables, which is not that of the file. */
enum { MOST_PARTS = 4 };

typedef struct {
    span part[MOST_PARTS];
    uint64_t hash;
    uint32_t flags;
    int32_t code;
} entry;

typedef struct {
    uint32_t *slots; /* place of an entry + 1, 0 for none */
    size_t n_slots, n, room;
    entry *entries;
    uint64_t seed;
} table;

/* Texts with one hash would make a batch slow: after so many of them the Python reader has it. */
enum { MOST_PROBES = 64, FIRST_SLOTS = 1024 };

static bool table_rehashed(table *table, size_t n_slots) {
    uint32_t *slots = calloc(n_slots, sizeof *slots);
    if (!slots) return false;
    for (size_t i = 0; i < table->n; i++) {
        size_t slot = (size_t)table->entries[i].hash & (n_slots - 1);
        while (slots[slot]) slot = (slot + 1) & (n_slots - 1);
        slots[slot] = (uint32_t)i + 1;
    }
    free(table->slots);
    table->slots = slots;
    table->n_slots = n_slots;
    return true;
}

static uint64_t table_hash(const table *table, const span part[], int n_parts) {
    uint64_t hash = table->seed;
    for (int i = 0; i < n_parts; i++) hash = hash_of(part[i].at, part[i].n, hash);
    return hash;
}

/* The place of a text in the table; -1 where it is not there, with the free slot for it; -2 for too many of one hash. */
static int64_t table_find(const table *table, const span part[], int n_parts, uint64_t hash, size_t *slot) {
    if (!table->n_slots) return -1;
    *slot = (size_t)hash & (table->n_slots - 1);
    for (int probes = 0; table->slots[*slot]; probes++, *slot = (*slot + 1) & (table->n_slots - 1)) {
        const entry *known = &table->entries[table->slots[*slot] - 1];
        bool is_same = known->hash == hash;
        for (int i = 0; is_same && i < n_parts; i++) is_same = same(known->part[i], part[i]);
        if (is_same) return (int64_t)table->slots[*slot] - 1;
        if (probes == MOST_PROBES) return -2;
    }
    return -1;
}

/* The place of a text with a hash, which is entered at its first sight; -1 without memory or with too many of one hash. */
static int64_t table_placed(table *table, const span part[], int n_parts, uint64_t hash, bool *is_new) {
    if ((table->n + 1) * 2 > table->n_slots && !table_rehashed(table, table->n_slots ? table->n_slots * 2 : FIRST_SLOTS))
        return -1;
    size_t slot = 0;
    int64_t place = table_find(table, part, n_parts, hash, &slot);
    *is_new = place == -1;
    if (place != -1) return place < 0 ? -1 : place;
    if (table->n >= INT32_MAX || !grown((void **)&table->entries, &table->room, table->n + 1, sizeof(entry))) return -1;
    entry *fresh = &table->entries[table->n];
    memset(fresh, 0, sizeof *fresh);
    memcpy(fresh->part, part, (size_t)n_parts * sizeof(span));
    fresh->hash = hash;
    fresh->code = -1;
    table->slots[slot] = (uint32_t)++table->n;
    return (int64_t)table->n - 1;
}

static int64_t table_place(table *table, const span part[], int n_parts, bool *is_new) {
    return table_placed(table, part, n_parts, table_hash(table, part, n_parts), is_new);
}

/* The same for a text of one part: most stand in the first slot that their hash gives. */
static inline int64_t table_place_text(table *table, span text, bool *is_new) {
    uint64_t hash = hash_of(text.at, text.n, table->seed);
    uint32_t place = table->n_slots ? table->slots[hash & (table->n_slots - 1)] : 0;
    *is_new = false;
    if (place && table->entries[place - 1].hash == hash && same(table->entries[place - 1].part[0], text)) return place - 1;
    return table_placed(table, &text, 1, hash, is_new);
}

/* The entry of a text, NULL for one that is not there. */
static const entry *table_entry(const table *table, span text) {
    size_t slot;
    int64_t place = table_find(table, &text, 1, table_hash(table, &text, 1), &slot);
    return place < 0 ? NULL : &table->entries[place];
}

static void table_clear(table *table) {
    if (table->n_slots > 64 * FIRST_SLOTS) { /* one odd batch: the next ones need not clear so much */
        free(table->slots);
        table->slots = NULL;
        table->n_slots = 0;
    } else if (table->n) {
        memset(table->slots, 0, table->n_slots * sizeof *table->slots);
    }
    table->n = 0;
}

static void table_free(table *table) {
    free(table->slots);
    free(table->entries);
}
