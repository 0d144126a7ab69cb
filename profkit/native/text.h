/* JSON text: strings, numbers and whole values, each checked to the last byte. What a function refuses is not for the
   scanner: NULL, and the Python reader says what it is. Every read stays below `end`. */
#pragma once

#include "memory.h"

#if defined(__SSE2__) && !defined(PROFKIT_WITHOUT_SSE2)
#include <emmintrin.h>
#define PROFKIT_SSE2 1
#endif

/* A processor guesses jumps and goes on; for a value that it computes it waits. NOT_KNOWN hides from the compiler that a
   number equals another one, JUMPED keeps a branch a jump: else it may compute what was to be guessed. */
#define NOT_KNOWN(number) __asm__ volatile("" : "+r"(number))
#define JUMPED __asm__ volatile("")

enum { MOST_DEPTH = 64, MOST_INTEGER_DIGITS = 18, MOST_TIME_DIGITS = 16, MOST_NUMBER_BYTES = 64 };

static inline const uint8_t *after_space(const uint8_t *p, const uint8_t *end) {
    if (p < end && *p > ' ') return p;
    if (p < end && *p == '\n') {
        JUMPED;
        p++;
    }
    while (end - p >= 4 && load32(p) == UINT32_C(0x20202020)) p += 4; /* indents */
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) p++;
    return p;
}

static inline bool is_digit(uint8_t byte) { return (uint8_t)(byte - '0') < 10; }

/* Whether text is UTF-8: no overlong forms, no surrogates, nothing beyond U+10FFFF. */
static bool is_utf8(const uint8_t *p, const uint8_t *end) {
    while (p < end) {
#ifdef PROFKIT_SSE2
        while (end - p >= 64) {
            const __m128i *four = (const __m128i *)p;
            __m128i first = _mm_or_si128(_mm_loadu_si128(four), _mm_loadu_si128(four + 1));
            __m128i last = _mm_or_si128(_mm_loadu_si128(four + 2), _mm_loadu_si128(four + 3));
            if (_mm_movemask_epi8(_mm_or_si128(first, last))) break;
            p += 64;
        }
        while (end - p >= 16 && !_mm_movemask_epi8(_mm_loadu_si128((const __m128i *)p))) p += 16;
        if (p == end) break;
#endif
        uint8_t first = *p++;
        if (first < 0x80) continue;
        int n_more = first >= 0xC2 && first < 0xE0 ? 1 : (first & 0xF0) == 0xE0 ? 2 : first >= 0xF0 && first < 0xF5 ? 3 : 0;
        if (n_more == 0 || end - p < n_more) return false;
        uint8_t low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
        uint8_t high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
        if (*p < low || *p > high) return false;
        for (int i = 1; i < n_more; i++)
            if ((p[i] & 0xC0) != 0x80) return false;
        p += n_more;
    }
    return true;
}

static int hex_of(uint8_t byte) {
    if (is_digit(byte)) return byte - '0';
    byte |= 0x20;
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

/* The character of four hexadecimal digits; -1 for what is none by itself (half a surrogate) or a NUL. */
static int32_t hex_character(const uint8_t *p, const uint8_t *end) {
    if (end - p < 4) return -1;
    int32_t code = 0;
    for (int i = 0; i < 4; i++) {
        int digit = hex_of(p[i]);
        if (digit < 0) return -1;
        code = code * 16 + digit;
    }
    return code == 0 || (code >= 0xD800 && code < 0xE000) ? -1 : code;
}

typedef struct {
    span text; /* between the quotes, as written */
    bool has_escapes;
} string;

/* Read a string from behind its first quote to behind its last. */
static inline const uint8_t *read_string(const uint8_t *p, const uint8_t *end, string *found) {
    const uint8_t *start = p;
    bool has_escapes = false;
    for (;;) {
#ifdef PROFKIT_SSE2
        const __m128i quote = _mm_set1_epi8('"'), backslash = _mm_set1_epi8('\\'), control = _mm_set1_epi8(0x1F);
        while (end - p >= 16) {
            __m128i bytes = _mm_loadu_si128((const __m128i *)p);
            __m128i odd = _mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, backslash));
            odd = _mm_or_si128(odd, _mm_cmpeq_epi8(_mm_min_epu8(bytes, control), bytes));
            unsigned mask = (unsigned)_mm_movemask_epi8(odd);
            if (mask) {
                p += __builtin_ctz(mask);
                break;
            }
            p += 16;
        }
#endif
        while (p < end && *p != '"' && *p != '\\' && *p >= 0x20) p++;
        if (p == end || *p < 0x20) return NULL;
        if (*p == '"') break;
        has_escapes = true;
        if (end - p < 2) return NULL;
        uint8_t kind = p[1];
        p += 2;
        if (kind == 'u') {
            if (hex_character(p, end) < 0) return NULL;
            p += 4;
        } else if (!memchr("\"\\/bfnrt", kind, 8)) {
            return NULL;
        }
    }
    if (p - start > UINT32_MAX) return NULL;
    found->text = (span){start, (uint32_t)(p - start)};
    found->has_escapes = has_escapes;
    return p + 1;
}

/* The characters that a string with escapes stands for, in the arena: never longer than it is written. */
static bool unescaped(string written, arena *arena, span *found) {
    if (!written.has_escapes) {
        *found = written.text;
        return true;
    }
    uint8_t *start = arena_take(arena, written.text.n), *to = start;
    if (!start) return false;
    const uint8_t *p = written.text.at, *end = p + written.text.n;
    while (p < end) {
        if (*p != '\\') {
            *to++ = *p++;
            continue;
        }
        uint8_t kind = p[1]; /* read_string has seen that it is there, and what follows a u */
        p += 2;
        if (kind == 'u') {
            int32_t code = hex_character(p, end);
            p += 4;
            if (code < 0x80) {
                *to++ = (uint8_t)code;
            } else if (code < 0x800) {
                *to++ = (uint8_t)(0xC0 | code >> 6);
                *to++ = (uint8_t)(0x80 | (code & 0x3F));
            } else {
                *to++ = (uint8_t)(0xE0 | code >> 12);
                *to++ = (uint8_t)(0x80 | (code >> 6 & 0x3F));
                *to++ = (uint8_t)(0x80 | (code & 0x3F));
            }
        } else {
            *to++ = kind == 'b' ? '\b' : kind == 'f' ? '\f' : kind == 'n' ? '\n' : kind == 'r' ? '\r' : kind == 't' ? '\t' : kind;
        }
    }
    *found = (span){start, (uint32_t)(to - start)};
    return true;
}

/* Eight bytes of text: how many digits they begin with. A sum or a difference of a byte that is no digit may change the
   bytes above it, never those below. */
static inline unsigned n_digits_of(uint64_t bytes) {
    const uint64_t ones = UINT64_C(0x0101010101010101);
    uint64_t odd = ((bytes + ones * 0x46) | (bytes - ones * 0x30)) & (ones * 0x80);
    return odd ? (unsigned)__builtin_ctzll(odd) / 8 : 8;
}

/* The value of the first n digits of eight bytes, n from 1: pairs of them, then pairs of pairs. */
static inline uint64_t value_of_bytes(uint64_t bytes, unsigned n) {
    bytes = (bytes & UINT64_C(0x0F0F0F0F0F0F0F0F)) << (64 - 8 * n);
    bytes = (bytes * (10 * 256 + 1) >> 8) & UINT64_C(0x00FF00FF00FF00FF);
    bytes = (bytes * (100 * 65536 + 1) >> 16) & UINT64_C(0x0000FFFF0000FFFF);
    return bytes * (UINT64_C(10000) << 32 | 1) >> 32;
}

static const uint64_t POWERS[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};

/* Behind the digits at p, with their value, which is right for up to 18 of them. `usual` is how many there were last
   time: while that holds, the processor goes on behind them before it has counted them. */
static inline const uint8_t *read_digits(const uint8_t *p, const uint8_t *end, uint64_t *value, uint8_t *usual) {
    *value = 0;
    if (end - p >= 24) {
        uint64_t bytes = load64(p);
        unsigned n = n_digits_of(bytes), more = 0;
        if (n == 0) return p;
        *value = value_of_bytes(bytes, n);
        if (n == 8) {
            bytes = load64(p + 8);
            more = n_digits_of(bytes);
            if (more) *value = *value * POWERS[more] + value_of_bytes(bytes, more);
        }
        unsigned expected = *usual, step = expected;
        NOT_KNOWN(step);
        if (n + more != expected) {
            step = n + more;
            *usual = (uint8_t)step;
            NOT_KNOWN(step);
        }
        p += step;
        if (more < 8) return p;
    }
    for (; p < end && is_digit(*p); p++) *value = *value * 10 + (*p - '0');
    return p;
}

/* A number as written: its digits before and after the point, and their values where they are not too many. */
typedef struct {
    const uint8_t *decimals;
    uint64_t whole_value, decimals_value;
    uint32_t n_whole, n_decimals;
    bool is_negative, has_exponent;
} number;

static inline const uint8_t *read_number(const uint8_t *p, const uint8_t *end, number *found, uint8_t *usual) {
    const uint8_t *start = p;
    found->n_decimals = 0;
    found->has_exponent = false;
    found->is_negative = p < end && *p == '-';
    p += found->is_negative;
    const uint8_t *whole = p;
    p = read_digits(p, end, &found->whole_value, usual);
    ptrdiff_t n_whole = p - whole;
    if (n_whole == 0 || (n_whole > 1 && *whole == '0')) return NULL;
    found->n_whole = (uint32_t)n_whole;
    if (p < end && *p == '.') {
        found->decimals = ++p;
        p = read_digits(p, end, &found->decimals_value, usual + 1);
        if (p == found->decimals) return NULL;
        found->n_decimals = (uint32_t)(p - found->decimals);
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        found->has_exponent = true;
        p++;
        if (p < end && (*p == '+' || *p == '-')) p++;
        if (p == end || !is_digit(*p)) return NULL;
        while (p < end && is_digit(*p)) p++;
    }
    return p - start > MOST_NUMBER_BYTES ? NULL : p;
}

/* A whole number as int64; false for one with a point, an exponent, more than 18 digits, and for -0. */
static inline bool integer_of(const number *number, int64_t *found) {
    if (number->n_decimals || number->has_exponent || number->n_whole > MOST_INTEGER_DIGITS) return false;
    int64_t value = (int64_t)number->whole_value;
    *found = number->is_negative ? -value : value;
    return value != 0 || !number->is_negative;
}

/* Decimal microseconds as whole nanoseconds, further decimals rounded half to even, as `decimals.us_to_ns` does. */
static inline bool nanoseconds_of(const number *number, int64_t *found) {
    if (number->has_exponent || number->n_whole > MOST_TIME_DIGITS) return false;
    int64_t value = (int64_t)number->whole_value;
    if (value > INT64_MAX / 1000 - 1) return false;
    value *= 1000;
    if (number->n_decimals > 3) {
        const uint8_t *rest = number->decimals + 3;
        bool is_more = false;
        for (uint32_t i = 0; i < 3; i++) value += (number->decimals[i] - '0') * (int64_t)POWERS[2 - i];
        for (uint32_t i = 4; i < number->n_decimals; i++) is_more |= number->decimals[i] != '0';
        if (*rest > '5' || (*rest == '5' && (is_more || value % 2))) value++;
    } else if (number->n_decimals) {
        value += (int64_t)(number->decimals_value * POWERS[3 - number->n_decimals]);
    }
    *found = number->is_negative ? -value : value;
    return value != 0 || !number->is_negative;
}

/* A whole number of few digits, as most are; NULL for any other, which is then read in the usual way. */
static inline const uint8_t *read_plain(const uint8_t *p, const uint8_t *end, int64_t *found, uint8_t *usual) {
    uint64_t value;
    const uint8_t *behind = read_digits(p, end, &value, usual);
    ptrdiff_t n = behind - p;
    if (n == 0 || n > MOST_INTEGER_DIGITS || (n > 1 && *p == '0') || behind == end || *behind == '.' || (*behind | 0x20) == 'e') {
        JUMPED;
        return NULL;
    }
    *found = (int64_t)value;
    return behind;
}

/* Microseconds with at most three decimals, as nanoseconds; NULL for any other. */
static inline const uint8_t *read_plain_time(const uint8_t *p, const uint8_t *end, int64_t *found, uint8_t usual[2]) {
    uint64_t us, part = 0;
    const uint8_t *behind = read_digits(p, end, &us, usual);
    ptrdiff_t n = behind - p, n_decimals = 0;
    if (n == 0 || n > MOST_TIME_DIGITS || (n > 1 && *p == '0') || us > INT64_MAX / 1000 - 1) {
        JUMPED;
        return NULL;
    }
    if (behind < end && *behind == '.') {
        JUMPED;
        p = behind + 1;
        behind = read_digits(p, end, &part, usual + 1);
        n_decimals = behind - p;
        if (n_decimals == 0 || n_decimals > 3) return NULL;
    }
    if (behind == end || (*behind | 0x20) == 'e') {
        JUMPED;
        return NULL;
    }
    *found = (int64_t)(us * 1000 + part * POWERS[3 - n_decimals]);
    return behind;
}

static inline const uint8_t *after_word(const uint8_t *p, const uint8_t *end, const char *word, ptrdiff_t n) {
    return end - p >= n && memcmp(p, word, (size_t)n) == 0 ? p + n : NULL;
}

/* Behind a whole value of any kind. `is_read`: Python would decode it, so no number in it may be one that msgspec or
   Python refuse to hold (a whole one of many digits, 1e999). */
static const uint8_t *after_value(const uint8_t *p, const uint8_t *end, bool is_read) {
    uint8_t closes[MOST_DEPTH];
    int depth = 0;
    string text;
    number number;
    uint8_t usual[2] = {0, 0};
    for (;;) { /* at the start of a value */
        p = after_space(p, end);
        if (p == end) return NULL;
        if (*p == '{' || *p == '[') {
            if (depth == MOST_DEPTH) return NULL;
            closes[depth++] = *p == '{' ? '}' : ']';
            p = after_space(p + 1, end);
            if (p == end) return NULL;
            if (*p != closes[depth - 1]) {
                if (closes[depth - 1] == ']') continue;
                goto key;
            }
            p++;
            depth--;
        } else if (*p == '"') {
            p = read_string(p + 1, end, &text);
        } else if (*p == '-' || is_digit(*p)) {
            p = read_number(p, end, &number, usual);
            if (p && is_read && (number.has_exponent || (!number.n_decimals && number.n_whole > MOST_INTEGER_DIGITS)))
                return NULL;
        } else {
            p = *p == 't' ? after_word(p, end, "true", 4) : *p == 'f' ? after_word(p, end, "false", 5) : after_word(p, end, "null", 4);
        }
        if (!p) return NULL;
        for (;;) { /* behind a value */
            if (depth == 0) return p;
            p = after_space(p, end);
            if (p == end) return NULL;
            if (*p == ',') {
                p++;
                break;
            }
            if (*p != closes[depth - 1]) return NULL;
            p++;
            depth--;
        }
        if (closes[depth - 1] == ']') continue;
    key:
        p = after_space(p, end);
        if (p == end || *p != '"' || !(p = read_string(p + 1, end, &text))) return NULL;
        p = after_space(p, end);
        if (p == end || *p != ':') return NULL;
        p++;
    }
}

static inline const uint8_t *after_unread(const uint8_t *p, const uint8_t *end, uint8_t *usual) {
    int64_t value;
    const uint8_t *behind = read_plain(p, end, &value, usual);
    return behind ? behind : after_value(p, end, false);
}
