#define _GNU_SOURCE
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define ENVIRONMENT "NVML_IMITATION_STATE"
#define FILE_SIZE (512 * 1024)

struct state state;

static char path[4096];
static int sessions, lock_fd = -1, session_fd = -1;
static char seen[FILE_SIZE]; /* the text that `state` was read from */

/* One line per record. `S` is how a text is read (with its room) or written. */
#define READ "%95s"
#define WRITE "%s"
#define NODE "node boots=%u repeat=%u limit=%u serial=%u\n"
#define GPU_LINE(S)                                                                                                  \
    "gpu uuid=" S " mig=%u pending=%u capable=%u ampere=%u hiding=%u lost=%u memory=%u cores=%u major=%u minor=%u " \
    "bus=%u pci=%x resets=%u ecc=%u remap=%u remapfail=%u recovery=%u used=%u compute=%d graphics=%d mps=%d name=" S "\n"
#define PROFILE_LINE(S)                                                                                       \
    "profile gpu=%u constant=%u id=%u slices=%u count=%u memory=%u sms=%u copy=%u decoder=%u encoder=%u jpeg=%u " \
    "ofa=%u size=%u starts=%lx name=" S "\n"
#define INSTANCE_LINE                                                                                       \
    "instance gpu=%u id=%u profile=%u start=%u size=%u used=%u sm=%u tensor=%u dram=%u compute=%d graphics=%d " \
    "mps=%d\n"
#define COMPUTE_LINE(S) "compute gpu=%u instance=%u id=%u profile=%u start=%u size=%u index=%u uuid=" S "\n"
#define FAULT_LINE(S) "fault function=" S " value=%d times=%d gpu=%d\n"
#define DELAY_LINE(S) "delay function=" S " value=%d times=%d gpu=%d\n"
#define EVENT_LINE "event gpu=%u xid=%u instance=%u compute=%u\n"

/* -- reading and writing ------------------------------------------------------------------------------------------- */

static struct instance *instance_of(struct gpu *gpu, unsigned int id)
{
    for (unsigned int n = 0; n < gpu->instances; n++)
        if (gpu->instance[n].id == id)
            return &gpu->instance[n];
    return NULL;
}

static bool read_line(const char *line)
{
    unsigned int g = 0, id = 0;
    struct gpu gpu = {0};
    struct profile p = {0};
    struct instance i = {0};
    struct compute c = {0};
    struct rule rule = {0};
    struct event e = {0};
    if (sscanf(line, NODE, &state.boots, &state.repeat, &state.limit, &state.serial) == 4)
        return true;
    if (sscanf(line, GPU_LINE(READ), gpu.uuid, &gpu.mig, &gpu.pending, &gpu.capable, &gpu.ampere, &gpu.hiding, &gpu.lost,
               &gpu.memory, &gpu.cores, &gpu.major, &gpu.minor, &gpu.bus, &gpu.pci, &gpu.resets,
               &gpu.ecc, &gpu.remap, &gpu.remapfail, &gpu.recovery, &gpu.used, &gpu.processes[COMPUTE], &gpu.processes[GRAPHICS],
               &gpu.processes[MPS], gpu.name) == 23) {
        if (state.gpus < MAX_GPUS)
            state.gpu[state.gpus++] = gpu;
        return true;
    }
    if (sscanf(line, PROFILE_LINE(READ), &g, &p.constant, &p.id, &p.slices, &p.count, &p.memory, &p.sms, &p.engines[0],
               &p.engines[1], &p.engines[2], &p.engines[3], &p.engines[4], &p.size, &p.starts, p.name) == 15) {
        if (g < state.gpus && state.gpu[g].profiles < MAX_PROFILES)
            state.gpu[g].profile[state.gpu[g].profiles++] = p;
        return true;
    }
    if (sscanf(line, INSTANCE_LINE, &g, &i.id, &i.profile, &i.start, &i.size, &i.used, &i.sm, &i.tensor, &i.dram,
               &i.processes[COMPUTE], &i.processes[GRAPHICS], &i.processes[MPS]) == 12) {
        if (g < state.gpus && state.gpu[g].instances < MAX_INSTANCES)
            state.gpu[g].instance[state.gpu[g].instances++] = i;
        return true;
    }
    if (sscanf(line, COMPUTE_LINE(READ), &g, &id, &c.id, &c.profile, &c.start, &c.size, &c.index, c.uuid) == 8) {
        struct instance *found = g < state.gpus ? instance_of(&state.gpu[g], id) : NULL;
        if (found != NULL && found->computes < MAX_COMPUTES)
            found->compute[found->computes++] = c;
        return true;
    }
    if (sscanf(line, FAULT_LINE(READ), rule.function, &rule.value, &rule.times, &rule.gpu) == 4) {
        if (state.faults < MAX_RULES)
            state.fault[state.faults++] = rule;
        return true;
    }
    if (sscanf(line, DELAY_LINE(READ), rule.function, &rule.value, &rule.times, &rule.gpu) == 4) {
        if (state.delays < MAX_RULES)
            state.delay[state.delays++] = rule;
        return true;
    }
    if (sscanf(line, EVENT_LINE, &e.gpu, &e.xid, &e.instance, &e.compute) == 4) {
        if (state.events < MAX_EVENTS)
            state.event[state.events++] = e;
        return true;
    }
    return false;
}

static bool load(void)
{
    static char text[FILE_SIZE];
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    size_t length = 0;
    for (ssize_t got; length < FILE_SIZE - 1 && (got = read(file, text + length, FILE_SIZE - 1 - length)) > 0;)
        length += (size_t)got;
    close(file);
    text[length] = '\0';
    if (length > 0 && strcmp(text, seen) == 0)
        return true;
    memcpy(seen, text, length + 1);
    memset(&state, 0, sizeof state);
    for (char *rest = text, *line; (line = strsep(&rest, "\n")) != NULL;)
        if (*line != '\0' && !read_line(line)) {
            fprintf(stderr, "imitation of NVML: this line of %s makes no sense: %s\n", path, line);
            seen[0] = '\0';
            return false;
        }
    return state.limit > 0;
}

static void save_gpu(FILE *out, unsigned int g)
{
    struct gpu *gpu = &state.gpu[g];
    for (struct profile *p = gpu->profile; p < gpu->profile + gpu->profiles; p++)
        fprintf(out, PROFILE_LINE(WRITE), g, p->constant, p->id, p->slices, p->count, p->memory, p->sms, p->engines[0],
                p->engines[1], p->engines[2], p->engines[3], p->engines[4], p->size, p->starts, p->name);
    for (struct instance *i = gpu->instance; i < gpu->instance + gpu->instances; i++) {
        fprintf(out, INSTANCE_LINE, g, i->id, i->profile, i->start, i->size, i->used, i->sm, i->tensor,
                i->dram, i->processes[COMPUTE], i->processes[GRAPHICS], i->processes[MPS]);
        for (struct compute *c = i->compute; c < i->compute + i->computes; c++)
            fprintf(out, COMPUTE_LINE(WRITE), g, i->id, c->id, c->profile, c->start, c->size, c->index, c->uuid);
    }
}

static void save(void)
{
    char fresh[sizeof path + 8];
    snprintf(fresh, sizeof fresh, "%s.new", path);
    FILE *out = fopen(fresh, "we");
    if (out == NULL)
        abort();
    fprintf(out, NODE, state.boots, state.repeat, state.limit, state.serial);
    for (struct gpu *g = state.gpu; g < state.gpu + state.gpus; g++)
        fprintf(out, GPU_LINE(WRITE), g->uuid, g->mig, g->pending, g->capable, g->ampere, g->hiding, g->lost, g->memory,
                g->cores, g->major, g->minor, g->bus, g->pci, g->resets, g->ecc, g->remap, g->remapfail, g->recovery, g->used,
                g->processes[COMPUTE], g->processes[GRAPHICS], g->processes[MPS], g->name);
    for (unsigned int g = 0; g < state.gpus; g++)
        save_gpu(out, g);
    for (struct rule *f = state.fault; f < state.fault + state.faults; f++)
        if (f->times > 0)
            fprintf(out, FAULT_LINE(WRITE), f->function, f->value, f->times, f->gpu);
    for (struct rule *d = state.delay; d < state.delay + state.delays; d++)
        fprintf(out, DELAY_LINE(WRITE), d->function, d->value, d->times, d->gpu);
    for (struct event *e = state.event; e < state.event + state.events; e++)
        fprintf(out, EVENT_LINE, e->gpu, e->xid, e->instance, e->compute);
    if (fclose(out) != 0 || rename(fresh, path) != 0)
        abort();
}

static bool take(void)
{
    while (flock(lock_fd, LOCK_EX) != 0)
        if (errno != EINTR)
            return false;
    if (load())
        return true;
    flock(lock_fd, LOCK_UN);
    return false;
}

/* -- the session --------------------------------------------------------------------------------------------------- */

static int open_beside(const char *suffix)
{
    char name[sizeof path + 16];
    snprintf(name, sizeof name, "%s%s", path, suffix);
    return open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
}

nvmlReturn_t session_begin(void)
{
    if (sessions > 0) {
        sessions++;
        return NVML_SUCCESS;
    }
    const char *where = getenv(ENVIRONMENT);
    if (where == NULL || *where == '\0' || strlen(where) >= sizeof path)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    strcpy(path, where);
    seen[0] = '\0';
    if (access(path, R_OK) != 0 || (lock_fd = open_beside(".lock")) < 0)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    bool usable = take();
    if (usable)
        flock(lock_fd, LOCK_UN);
    /* Whoever wants to reset a GPU finds this lock taken: the session is in the way. It goes with the process. */
    if (!usable || (session_fd = open_beside(".session")) < 0 || flock(session_fd, LOCK_SH | LOCK_NB) != 0) {
        close(lock_fd);
        return NVML_ERROR_DRIVER_NOT_LOADED;
    }
    sessions = 1;
    return NVML_SUCCESS;
}

nvmlReturn_t session_end(void)
{
    if (sessions == 0)
        return NVML_ERROR_UNINITIALIZED;
    if (--sessions == 0) {
        close(session_fd);
        close(lock_fd);
    }
    return NVML_SUCCESS;
}

/* -- one call ------------------------------------------------------------------------------------------------------ */

void *handle_of(enum kind kind, unsigned int gpu, unsigned int first, unsigned int second)
{
    return (void *)((uintptr_t)kind << 32 | (uintptr_t)gpu << 24 | (uintptr_t)first << 12 | second);
}

static nvmlReturn_t resolve(struct call *call, unsigned int kinds, const void *handle)
{
    uintptr_t value = (uintptr_t)handle;
    unsigned int kind = (unsigned int)(value >> 32), first = (value >> 12) & 0xFFF, second = value & 0xFFF;
    call->number = (value >> 24) & 0xFF;
    if ((kind & kinds) == 0 || call->number >= state.gpus)
        return NVML_ERROR_INVALID_ARGUMENT;
    call->gpu = &state.gpu[call->number];
    if (call->gpu->lost)
        return NVML_ERROR_GPU_IS_LOST;
    if (kind == GPU)
        return NVML_SUCCESS;
    for (struct instance *i = call->gpu->instance; i < call->gpu->instance + call->gpu->instances; i++) {
        if (kind == INSTANCE && i->id == first)
            call->instance = i;
        for (struct compute *c = i->compute; c < i->compute + i->computes; c++)
            if (kind == MIG ? c->index == first : kind == COMPUTE_INSTANCE && i->id == first && c->id == second) {
                call->instance = i;
                call->compute = c;
            }
    }
    return call->instance == NULL ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS;
}

static bool applies(const struct rule *rule, const char *name, const struct call *call)
{
    return strcmp(rule->function, name) == 0 && (rule->gpu < 0 || (call->gpu && (unsigned int)rule->gpu == call->number));
}

nvmlReturn_t planned_fault(struct call *call, const char *name)
{
    for (struct rule *f = state.fault; f < state.fault + state.faults; f++)
        if (f->times > 0 && applies(f, name, call)) {
            f->times--;
            call->changed = true;
            return f->value == 0 ? PRETEND : (nvmlReturn_t)f->value;
        }
    return NVML_SUCCESS;
}

/* Append the call to the log beside the state, if somebody made one. */
static void note(const char *function, const struct call *call)
{
    char name[sizeof path + 8];
    snprintf(name, sizeof name, "%s.calls", path);
    int file = open(name, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (file >= 0) {
        dprintf(file, "%s %s\n", function, call->gpu ? call->gpu->uuid : "-");
        close(file);
    }
}

nvmlReturn_t begin(struct call *call, const char *function, unsigned int kinds, const void *handle)
{
    if (sessions == 0)
        return NVML_ERROR_UNINITIALIZED;
    if (!take())
        return NVML_ERROR_DRIVER_NOT_LOADED;
    call->locked = true;
    int milliseconds = 0;
    for (struct rule *d = state.delay; d < state.delay + state.delays; d++)
        if (strcmp(d->function, function) == 0)
            milliseconds = d->value;
    if (milliseconds > 0) {
        finish(call);
        usleep((useconds_t)milliseconds * 1000);
        if (!take())
            return NVML_ERROR_DRIVER_NOT_LOADED;
        call->locked = true;
    }
    nvmlReturn_t found = kinds == NONE ? NVML_SUCCESS : resolve(call, kinds, handle);
    note(function, call);
    return found == NVML_SUCCESS ? planned_fault(call, function) : found;
}

void finish(struct call *call)
{
    if (!call->locked)
        return;
    if (call->changed) {
        save();
        seen[0] = '\0'; /* what was removed may have left holes in `state`: read it again */
    }
    flock(lock_fd, LOCK_UN);
    call->locked = false;
}

/* -- text ---------------------------------------------------------------------------------------------------------- */

nvmlReturn_t answer_text(char *to, unsigned int length, const char *text, const char *more)
{
    unsigned int used = 0;
    const char *parts[] = {text, more};
    for (unsigned int n = 0; n < 2; n++)
        for (const char *from = parts[n]; from != NULL && *from != '\0'; used++) {
            if (to == NULL || used + 1 >= length)
                return NVML_ERROR_INSUFFICIENT_SIZE;
            char code[3] = {0};
            if (*from == '%' && from[1] != '\0' && from[2] != '\0') {
                memcpy(code, from + 1, 2);
                to[used] = (char)strtoul(code, NULL, 16);
                from += 3;
            } else
                to[used] = *from++;
        }
    if (to == NULL || length == 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    to[used] = '\0';
    return NVML_SUCCESS;
}
