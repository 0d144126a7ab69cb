/* Rows of an SQLite statement as columns of int64, without an object of Python for each value.

   SQLite's functions come as pointers, those that Python's own module is linked with: this library needs none. The
   statement was made by `nsys/fetch.py` under the same limits and the same authorizer as any other. */
#pragma once

#include "memory.h"

enum { SQLITE_ROW = 100, SQLITE_INTEGER = 1, SQLITE_TEXT = 3, SQLITE_BLOB = 4, SQLITE_NULL = 5 };
enum { WRONG_KIND = -1, WITHOUT_MEMORY = -2 }; /* beside what SQLite says itself */
enum { NO_TEXT = -1 };

typedef struct {
    int (*step)(void *statement);
    int (*type)(void *statement, int column);
    int64_t (*integer)(void *statement, int column);
    const void *(*blob)(void *statement, int column);
    int (*bytes)(void *statement, int column);
} sqlite;

/* The texts of one column of a statement, coded in order of first sight. */
typedef struct {
    sqlite sqlite;
    table texts;
    arena arena;
} selection;

static bool put_number(const selection *s, void *statement, int column, int64_t *value) {
    if (s->sqlite.type(statement, column) != SQLITE_INTEGER) return false;
    *value = s->sqlite.integer(statement, column);
    return true;
}

/* The code of a text, `NO_TEXT` for NULL. Texts are copied, for SQLite's own go with the next row. */
static int put_coded(selection *s, void *statement, int column, int64_t *value) {
    int type = s->sqlite.type(statement, column);
    *value = NO_TEXT;
    if (type == SQLITE_NULL) return SQLITE_ROW;
    if (type != SQLITE_TEXT && type != SQLITE_BLOB) return WRONG_KIND;
    const void *at = s->sqlite.blob(statement, column);
    int n = s->sqlite.bytes(statement, column);
    if (n < 0 || (n > 0 && !at)) return WITHOUT_MEMORY;
    span text = {n ? at : (const uint8_t *)"", (uint32_t)n};
    bool is_new;
    int64_t place = table_place(&s->texts, &text, 1, &is_new);
    if (place < 0) return WITHOUT_MEMORY;
    if (is_new) {
        uint8_t *kept = arena_take(&s->arena, text.n);
        if (!kept) {
            s->texts.entries[place].part[0].n = 0;
            return WITHOUT_MEMORY;
        }
        memcpy(kept, text.at, text.n);
        s->texts.entries[place].part[0].at = kept;
    }
    *value = place;
    return SQLITE_ROW;
}

/* Fill up to `n_rows` rows of `n_columns` columns, one after the other in `values`; the last column is text if
   `has_text`. Gives the number of rows; `told` is SQLITE_ROW if there may be more, else what SQLite said last, or why not. */
static int64_t fetched(selection *s, void *statement, int n_columns, int has_text, int64_t n_rows, int64_t *values, int *told) {
    *told = SQLITE_ROW;
    int n_numbers = n_columns - (has_text ? 1 : 0);
    for (int64_t row = 0; row < n_rows; row++) {
        if ((*told = s->sqlite.step(statement)) != SQLITE_ROW) return row;
        for (int column = 0; column < n_numbers; column++) {
            if (!put_number(s, statement, column, &values[column * n_rows + row])) {
                *told = WRONG_KIND;
                return row;
            }
        }
        if (has_text && (*told = put_coded(s, statement, n_numbers, &values[n_numbers * n_rows + row])) != SQLITE_ROW) return row;
    }
    return n_rows;
}
