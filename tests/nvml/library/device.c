/* Session, GPUs, their identity, MIG mode, memory, processes. */
#include <stdio.h>
#include <string.h>

#include "state.h"

#define MIB (1024ULL * 1024ULL)

/* -- session ------------------------------------------------------------------------------------------------------- */

API nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    return session_begin();
}

API nvmlInit_v2(void) { return session_begin(); }

API nvmlShutdown(void) { return session_end(); }

__attribute__((visibility("default"))) const char *nvmlErrorString(nvmlReturn_t result);
const char *nvmlErrorString(nvmlReturn_t result)
{
    switch (result) {
    case NVML_SUCCESS:
        return "Success";
    case NVML_ERROR_IN_USE:
        return "In use by another client";
    case NVML_ERROR_INSUFFICIENT_RESOURCES:
        return "Insufficient Resources";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
        return "Argument version mismatch";
    default:
        return "Unknown Error";
    }
}

API nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    CALL(NONE, NULL);
    char text[TEXT];
    snprintf(text, sizeof text, "%d.0.0-imitation", DRIVER);
    return answer_text(version, length, text, NULL);
}

API nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    CALL(NONE, NULL);
    char text[TEXT];
    snprintf(text, sizeof text, "12.%d.0-imitation", DRIVER);
    return answer_text(version, length, text, NULL);
}

/* -- finding GPUs -------------------------------------------------------------------------------------------------- */

/* A handle of a GPU, unless it is lost: the by-index call is where that shows first. */
static nvmlReturn_t answer_gpu(struct call *call, const char *function, unsigned int number, nvmlDevice_t *device)
{
    if (state.gpu[number].lost)
        return NVML_ERROR_GPU_IS_LOST;
    call->gpu = &state.gpu[number];
    call->number = number;
    *device = handle_of(GPU, number, 0, 0);
    return planned_fault(call, function);
}

API nvmlDeviceGetCount_v2(unsigned int *count)
{
    CALL(NONE, NULL);
    *count = state.gpus;
    return NVML_SUCCESS;
}

API nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    CALL(NONE, NULL);
    return index < state.gpus ? answer_gpu(&call, __func__, index, device) : NVML_ERROR_INVALID_ARGUMENT;
}

/* Accepts GPU-<uuid>, MIG-<uuid> and the old form MIG-GPU-<uuid>/<gpu instance>/<compute instance>. */
API nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    CALL(NONE, NULL);
    char old[2 * TEXT];
    for (unsigned int n = 0; n < state.gpus; n++) {
        struct gpu *gpu = &state.gpu[n];
        if (strcmp(gpu->uuid, uuid) == 0)
            return answer_gpu(&call, __func__, n, device);
        for (struct instance *i = gpu->instance; i < gpu->instance + gpu->instances; i++)
            for (struct compute *c = i->compute; c < i->compute + i->computes; c++) {
                snprintf(old, sizeof old, "MIG-%s/%u/%u", gpu->uuid, i->id, c->id);
                if (strcmp(c->uuid, uuid) == 0 || strcmp(old, uuid) == 0) {
                    *device = handle_of(MIG, n, c->index, 0);
                    return gpu->lost ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
                }
            }
    }
    return NVML_ERROR_NOT_FOUND;
}

API nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvmlDevice_t *device)
{
    CALL(NONE, NULL);
    unsigned int number = 0;
    if (sscanf(bus, "%*x:%x:", &number) != 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned int n = 0; n < state.gpus; n++)
        if (state.gpu[n].bus == number)
            return answer_gpu(&call, __func__, n, device);
    return NVML_ERROR_NOT_FOUND;
}

/* -- identity ------------------------------------------------------------------------------------------------------ */

/* A MIG device is called as its parent, then " MIG 1g.10gb". */
API nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    CALL(GPU | MIG, device);
    char more[TEXT + 4] = "";
    if (call.compute != NULL)
        snprintf(more, sizeof more, "%%20%s", profile_by_id(call.gpu, call.instance->profile)->name);
    return answer_text(name, length, call.gpu->name, more);
}

API nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    CALL(GPU | MIG, device);
    return answer_text(uuid, length, call.compute ? call.compute->uuid : call.gpu->uuid, NULL);
}

API nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *info)
{
    CALL(GPU, device);
    memset(info, 0, sizeof *info);
    info->bus = call.gpu->bus;
    info->pciDeviceId = call.gpu->pci;
    snprintf(info->busId, sizeof info->busId, "%08X:%02X:%02X.0", 0U, info->bus & 0xFFU, 0U);
    snprintf(info->busIdLegacy, sizeof info->busIdLegacy, "%04X:%02X:%02X.0", 0U, info->bus & 0xFFU, 0U);
    return NVML_SUCCESS;
}

API nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor)
{
    CALL(GPU, device);
    *minor = call.number;
    return NVML_SUCCESS;
}

API nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    CALL(GPU | MIG, device);
    *major = (int)call.gpu->major;
    *minor = (int)call.gpu->minor;
    return NVML_SUCCESS;
}

#if DRIVER >= 510
API nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned int *cores)
{
    CALL(GPU, device);
    *cores = call.gpu->cores;
    return NVML_SUCCESS;
}
#endif

/* -- memory and utilisation ---------------------------------------------------------------------------------------- */

static unsigned long long total_memory(const struct call *call)
{
    return MIB * (call->instance ? profile_by_id(call->gpu, call->instance->profile)->memory : call->gpu->memory);
}

static unsigned long long used_memory(const struct call *call)
{
    return MIB * (call->instance ? call->instance->used : call->gpu->used);
}

API nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    CALL(GPU | MIG, device);
    unsigned long long total = total_memory(&call), used = used_memory(&call);
    *memory = (nvmlMemory_t){.total = total, .free = total - used, .used = used};
    return NVML_SUCCESS;
}

#if DRIVER >= 510
API nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    CALL(GPU | MIG, device);
    if (memory->version != NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2U))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    unsigned long long total = total_memory(&call), used = used_memory(&call);
    *memory = (nvmlMemory_v2_t){.version = memory->version, .total = total, .free = total - used, .used = used};
    return NVML_SUCCESS;
}
#endif

/* Never with MIG mode on, neither for the GPU nor for a slice of it. */
API nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
    CALL(GPU | MIG, device);
    *utilization = (nvmlUtilization_t){0};
    return call.gpu->mig ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

/* -- processes ----------------------------------------------------------------------------------------------------- */

struct listing {
    nvmlProcessInfo_t *infos;
    unsigned int room, found;
    bool unknown;
};

static void list_some(struct listing *to, int count, unsigned int instance, unsigned int compute, unsigned int first)
{
    to->unknown |= count < 0;
    for (int n = 0; n < count; n++, to->found++)
        if (to->infos != NULL && to->found < to->room)
            to->infos[to->found] = (nvmlProcessInfo_t){
                .pid = first + (unsigned int)n,
                .usedGpuMemory = 512 * MIB,
                .gpuInstanceId = instance,
                .computeInstanceId = compute,
            };
}

/* On a GPU all that run on it, each with its instances; on a MIG device its own. */
static nvmlReturn_t list_processes(const char *name, int kind, nvmlDevice_t device, unsigned int *count,
                                   nvmlProcessInfo_t *infos)
{
    struct call call __attribute__((cleanup(finish))) = {0};
    nvmlReturn_t begun = begin(&call, name, GPU | MIG, device);
    if (begun != NVML_SUCCESS)
        return begun == PRETEND ? NVML_SUCCESS : begun;
    struct listing list = {.infos = infos, .room = *count};
    unsigned int pid = 10000 + 1000 * call.number + 400 * (unsigned int)kind;
    for (struct instance *i = call.gpu->instance; i < call.gpu->instance + call.gpu->instances; i++)
        if (i->computes > 0 && (call.instance == NULL || call.instance == i))
            list_some(&list, i->processes[kind], i->id, i->compute[0].id, pid + 20 * (i->id + 1));
    if (call.instance == NULL)
        list_some(&list, call.gpu->processes[kind], NVML_NO_INSTANCE, NVML_NO_INSTANCE, pid);
    if (list.unknown)
        return NVML_ERROR_UNKNOWN;
    bool fits = list.found <= list.room;
    *count = list.found;
    return fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

#define PROCESSES(name, kind)                                                            \
    API name(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos)         \
    {                                                                                    \
        return list_processes(__func__, kind, device, count, infos);                     \
    }

PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, COMPUTE)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, GRAPHICS)
#if DRIVER >= 510
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, COMPUTE)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, GRAPHICS)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, MPS)
#endif

#if DRIVER >= 450

/* -- MIG mode ------------------------------------------------------------------------------------------------------ */

API nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    CALL(GPU, device);
    if (!call.gpu->capable)
        return NVML_ERROR_NOT_SUPPORTED;
    *current = call.gpu->mig;
    *pending = call.gpu->pending;
    return NVML_SUCCESS;
}

static bool busy(const struct gpu *gpu)
{
    return gpu->instances > 0 || gpu->processes[COMPUTE] || gpu->processes[GRAPHICS] || gpu->processes[MPS];
}

/* The return value says that the request was understood; `activation` says whether the mode is what was asked for. On Ampere
 * the mode waits for the next reset if it cannot be had now; an idle GPU is reset at once. */
API nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned int mode, nvmlReturn_t *activation)
{
    CALL(GPU, device);
    if (!call.gpu->capable)
        return NVML_ERROR_NOT_SUPPORTED;
    if (mode > 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    call.changed = true;
    *activation = planned_fault(&call, "nvmlDeviceSetMigMode.activation");
    if (*activation == PRETEND) {
        *activation = NVML_SUCCESS; /* says it did, and it waits for a reset */
        call.gpu->pending = mode;
    } else if (mode == call.gpu->mig) {
        call.gpu->pending = mode;
    } else if (*activation != NVML_SUCCESS || busy(call.gpu)) {
        if (*activation == NVML_SUCCESS)
            *activation = NVML_ERROR_IN_USE;
        if (call.gpu->ampere)
            call.gpu->pending = mode;
    } else {
        call.gpu->mig = call.gpu->pending = mode;
        if (call.gpu->ampere)
            call.gpu->resets++;
        if (planned_fault(&call, "nvmlDeviceSetMigMode.rebind") != NVML_SUCCESS) {
            struct gpu first = state.gpu[0]; /* unbound and bound again: the first two change places */
            state.gpu[0] = state.gpu[1];
            state.gpu[1] = first;
        }
    }
    return NVML_SUCCESS;
}

#endif
