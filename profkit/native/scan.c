/* The elements of traceEvents to columns, without an object of Python: a JSON array in, one block of bytes out.

   One unit: memory (what is used again), text (JSON), event (one element), rows (what it means), result (the block).
   What it takes it reads exactly as `batch.decode_batch` does; of anything it is not certain of it says so, and Python
   reads the batch. `scanner.py` is the other side. */
#include "result.h"
#include "select.h"

#ifndef PROFKIT_SOURCE
#define PROFKIT_SOURCE 0 /* of a build without hatch_build.py: refused by library.py */
#endif

#define PUBLIC __attribute__((visibility("default")))

/* The checksum of the sources that this was built from. */
PUBLIC uint32_t profkit_source(void) { return PROFKIT_SOURCE; }

/* The key of an argument that is read, NULL behind the last. */
PUBLIC const char *profkit_argument_key(int i) { return i >= 0 && i < N_ARGUMENTS ? argument_keys[i] : NULL; }

/* What scans one batch after the other; NULL without memory. The seed is secret: names chosen to collide cannot be. */
PUBLIC scanner *profkit_scanner(uint64_t seed) {
    scanner *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    keys_fill(&s->keys);
    s->names.seed = s->ids.seed = s->threads.seed = s->signatures.seed = seed;
    s->categories.seed = s->usual_names.seed = s->usual_categories.seed = seed;
    return s;
}

PUBLIC void profkit_scanner_free(scanner *s) {
    if (!s) return;
    table *const tables[] = {&s->names, &s->ids, &s->threads, &s->signatures, &s->categories, &s->usual_names, &s->usual_categories};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) table_free(tables[i]);
    arena_clear(&s->arena, false);
    arena_clear(&s->known, false);
    free(s->rows);
    free(s->rares);
    free(s->order);
    free(s->out);
    free(s);
}

/* Tell a scanner what a name or a category means; 0 without memory. */
PUBLIC int profkit_know(scanner *s, int is_name, const uint8_t *text, uint32_t n, uint32_t flags, int table_of) {
    table *usual = is_name ? &s->usual_names : &s->usual_categories;
    uint8_t *kept = arena_take(&s->known, n);
    bool is_new;
    if (!kept) return 0;
    memcpy(kept, text, n);
    span known = {kept, n};
    int64_t place = table_place(usual, &known, 1, &is_new);
    if (place < 0) return 0;
    usual->entries[place].flags = flags;
    usual->entries[place].code = table_of;
    return 1;
}

static void cleared(scanner *s) {
    table_clear(&s->names);
    table_clear(&s->ids);
    table_clear(&s->threads);
    table_clear(&s->signatures);
    table_clear(&s->categories);
    arena_clear(&s->arena, true);
    s->n_rows = s->n_rares = 0;
    s->n_groups = 0;
    s->n_events = 0;
    s->has_stacks = s->has_signatures = false;
    s->last_thread = -1;
    memset(s->usual_category, 0, sizeof s->usual_category);
    forget_expected(&s->keys);
}

static reason scanned(scanner *s, const uint8_t *p, const uint8_t *end, bool unique_keys) {
    reason why = MALFORMED;
    bool is_over = false;
    p = after_space(p, end);
    if (p == end || *p != '[') return MALFORMED;
    p = after_space(p + 1, end);
    if (p < end && *p == ']') {
        is_over = true;
        p++;
    }
    while (!is_over) {
        p = after_space(p, end);
        if (p == end || *p != '{') return NO_OBJECT;
        if (!(p = read_event(p, end, &s->keys, unique_keys, &s->event, &why))) return why;
        if (!take_event(s, &s->event, &why)) return why;
        p = after_space(p, end);
        if (p == end || (*p != ',' && *p != ']')) return MALFORMED;
        is_over = *p++ == ']';
    }
    return after_space(p, end) == end ? ACCEPTED : MALFORMED;
}

/* Scan a JSON array of whole events: the size of the block at `profkit_result`, or the negative reason why not. */
PUBLIC int64_t profkit_scan(scanner *s, const uint8_t *text, int64_t n, int unique_keys) {
    if (n < 0 || n > INT32_MAX) return -TOO_MANY;
    cleared(s);
    if (!is_utf8(text, text + n)) return -NOT_UTF8;
    reason why = scanned(s, text, text + n, unique_keys);
    if (why != ACCEPTED) return -(int64_t)why;
    return put_result(s, text) ? (int64_t)s->n_out : -NO_MEMORY;
}

PUBLIC const uint8_t *profkit_result(const scanner *s) { return s->out; }

/* What fetches rows of one SQLite statement, by these functions of SQLite (`select.h` names them); NULL without memory. */
PUBLIC selection *profkit_selection(void *const functions[5], uint64_t seed) {
    selection *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    memcpy(&s->sqlite, functions, sizeof s->sqlite);
    s->texts.seed = seed;
    return s;
}

PUBLIC void profkit_selection_free(selection *s) {
    if (!s) return;
    table_free(&s->texts);
    arena_clear(&s->arena, false);
    free(s);
}

PUBLIC int64_t profkit_fetch(selection *s, void *statement, int n_columns, int has_text, int64_t n_rows, int64_t *values, int *told) {
    return fetched(s, statement, n_columns, has_text, n_rows, values, told);
}

/* How many texts have a code, and one of them with its size. */
PUBLIC int64_t profkit_texts(const selection *s) { return (int64_t)s->texts.n; }

PUBLIC const uint8_t *profkit_text(const selection *s, int64_t code, int64_t *n) {
    *n = s->texts.entries[code].part[0].n;
    return s->texts.entries[code].part[0].at;
}
