/* A scanner that knows what `scanner._taught` tells one, for the programs that run it without Python. */
#pragma once

#include <string.h>

static const struct {
    const char *text;
    uint32_t flags;
    int table;
} categories[] = {
    {"cpu_op", CATEGORY_COMMON_OPS, OPS}, {"Operator", 0, OPS}, {"cuda_runtime", 0, CALLS}, {"user_annotation", 0, SPANS},
    {"python_function", 0, PYTHON}, {"overhead", 0, OVERHEAD}, {"kernel", 0, KERNELS}, {"gpu_memcpy", 0, COPIES},
    {"gpu_user_annotation", 0, DEVICE_SPANS}, {"cuda_sync", 0, SYNC_ROWS}, {"mtia_ccp_events", 0, MTIA},
    {"ac2g", CATEGORY_ARROWS, NO_TABLE}, {"fwdbwd", CATEGORY_FLOWS, NO_TABLE}, {"profkit", CATEGORY_COUNTERS, NO_TABLE},
};

/* NULL without memory. */
static scanner *taught(uint64_t seed) {
    scanner *s = profkit_scanner(seed);
    bool is_taught = s != NULL;
    for (size_t i = 0; is_taught && i < sizeof categories / sizeof *categories; i++)
        is_taught = profkit_know(s, 0, (const uint8_t *)categories[i].text, (uint32_t)strlen(categories[i].text), categories[i].flags, categories[i].table);
    is_taught = is_taught && profkit_know(s, 1, (const uint8_t *)"aten::view", 10, NAME_WITHOUT_WORK, NO_TABLE);
    is_taught = is_taught && profkit_know(s, 1, (const uint8_t *)"record_param_comms", 18, NAME_COLLECTIVE, NO_TABLE);
    is_taught = is_taught && profkit_know(s, 1, (const uint8_t *)"aten::embedding", 15, NAME_EMBEDDING, NO_TABLE);
    if (is_taught) return s;
    profkit_scanner_free(s);
    return NULL;
}
