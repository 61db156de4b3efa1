/* The GPUs as they lie in the state file, and what every call of the library does first and last. */
#ifndef STATE_H
#define STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi.h"

/* Which driver is imitated: its major version. Symbols that came later are left out, as they are in an old library. */
#ifndef DRIVER
#define DRIVER 580
#endif

#define API __attribute__((visibility("default"))) nvmlReturn_t

enum { MAX_GPUS = 32, MAX_PROFILES = 32, MAX_INSTANCES = 16, MAX_COMPUTES = 8, MAX_RULES = 64, MAX_EVENTS = 64, TEXT = 96 };
enum { ENGINES = 5 };                         /* copy, decoder, encoder, jpeg, ofa */
enum { COMPUTE, GRAPHICS, MPS, KINDS_OF_WORK }; /* kinds of processes */

struct profile {
    unsigned int constant, id, slices, count, memory, sms, size, engines[ENGINES];
    unsigned long starts; /* bit n: an instance may begin at memory slice n */
    char name[TEXT];
};

struct compute {
    unsigned int id, profile, start, size, index; /* index: of its MIG device */
    char uuid[TEXT];
};

struct instance {
    unsigned int id, profile, start, size;
    int processes[KINDS_OF_WORK]; /* -1: cannot be read */
    unsigned int used, sm, tensor, dram; /* memory in MiB; activity in thousandths */
    unsigned int computes;
    struct compute compute[MAX_COMPUTES];
};

struct gpu {
    char uuid[TEXT], name[TEXT]; /* names with %XX for what is no plain character */
    unsigned int mig, pending, capable, ampere, hiding, lost, memory, cores, major, minor, bus, pci, resets;
    unsigned int ecc, remap, remapfail, recovery, used; /* memory errors since the reset, rows, action, memory in MiB */
    int processes[KINDS_OF_WORK];
    unsigned int profiles, instances;
    struct profile profile[MAX_PROFILES];
    struct instance instance[MAX_INSTANCES];
};

/* A fault (`value` is the code that is returned, `times` how often) or a delay (`value` is milliseconds). */
struct rule {
    char function[TEXT];
    int value, times, gpu; /* gpu -1: any */
};

/* Something that was announced and that nobody has heard yet. */
struct event {
    unsigned int gpu, xid, instance, compute;
};

struct state {
    unsigned int boots, repeat, limit, serial; /* limit: first constant that is an invalid argument */
    unsigned int gpus, faults, delays, events;
    struct gpu gpu[MAX_GPUS];
    struct rule fault[MAX_RULES], delay[MAX_RULES];
    struct event event[MAX_EVENTS];
};

extern struct state state;

/* Kinds of handles. A handle says "the nth GPU", "its nth MIG device", "its GPU instance n": what it means changes with the
 * state, as handles of the real library do when something else comes to sit there. */
enum kind { NONE = 0, GPU = 1, MIG = 2, INSTANCE = 4, COMPUTE_INSTANCE = 8 };

struct call {
    struct gpu *gpu;
    struct instance *instance;
    struct compute *compute;
    unsigned int number; /* of the GPU */
    bool locked, changed;
};

#define EACH(type, it, array, count) for (type *it = (array); it < (array) + (count); it++)

static inline unsigned long mask_of(unsigned int start, unsigned int size) { return ((1UL << size) - 1) << start; }

struct profile *profile_by_id(struct gpu *gpu, unsigned int id);
/* Whether an instance of `wanted` fits at `start`, with `more` of them already on the slices in `mask`. */
bool has_room(struct gpu *gpu, const struct profile *wanted, unsigned int start, unsigned int more, unsigned long mask);

void *handle_of(enum kind kind, unsigned int gpu, unsigned int first, unsigned int second);

/* Take the state, find what the handle means, and fail if the session, the GPU or a planned fault says so. */
nvmlReturn_t begin(struct call *call, const char *function, unsigned int kinds, const void *handle);
/* Put the state back if `changed`, and let go of it. */
void finish(struct call *call);
/* A fault that was planned under this name, or success. */
nvmlReturn_t planned_fault(struct call *call, const char *name);
/* Begin and end the session. */
nvmlReturn_t session_begin(void);
nvmlReturn_t session_end(void);
/* A text with its %XX resolved. */
nvmlReturn_t answer_text(char *to, unsigned int length, const char *text, const char *more);

/* Returned by `begin` for a planned fault of code 0: the call says success and does nothing. */
#define PRETEND ((nvmlReturn_t)1000)

#define CALL(kinds, handle)                                                    \
    struct call call __attribute__((cleanup(finish))) = {0};                   \
    nvmlReturn_t begun = begin(&call, __func__, (kinds), (const void *)(handle)); \
    if (begun != NVML_SUCCESS)                                                 \
        return begun == PRETEND ? NVML_SUCCESS : begun

#endif
