/* Compute instances, and the MIG devices that come with them. */
#include <stdio.h>
#include <string.h>

#include "state.h"

#if DRIVER >= 450

/* Compute slices of the compute instance profiles; 0 marks a number that is not in use. */
static const unsigned int compute_slices[] = {1, 2, 3, 4, 7, 8, 6, 1, 7};
enum { COMPUTE_PROFILES = 9, DOUBLE_MEMORY = 9, ONE_SLICE_REV1 = 7, SEVEN_SLICE_NVL = 8 };

/* How many of a compute instance profile a GPU instance takes; 0: it has no such profile. The 1g with double memory has but
 * one, and that is number 7. */
static unsigned int compute_count(const struct profile *p, unsigned int constant)
{
    if (p->constant == DOUBLE_MEMORY)
        return constant == ONE_SLICE_REV1;
    if (constant == ONE_SLICE_REV1 || (constant == SEVEN_SLICE_NVL && p->slices != 7))
        return 0;
    return p->slices / compute_slices[constant];
}

static nvmlReturn_t find_compute(struct call *call, unsigned int constant, unsigned int engine, struct profile **found)
{
    if (constant >= COMPUTE_PROFILES || engine != 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    *found = profile_by_id(call->gpu, call->instance->profile);
    return *found && compute_count(*found, constant) > 0 ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

#define COMMON_COMPUTE(p, constant)                                                                            \
    .id = (constant), .sliceCount = compute_slices[constant], .instanceCount = compute_count((p), (constant)),   \
    .multiprocessorCount = (p)->sms * compute_slices[constant] / (p)->slices,                                    \
    .sharedCopyEngineCount = (p)->engines[0], .sharedDecoderCount = (p)->engines[1],                             \
    .sharedEncoderCount = (p)->engines[2], .sharedJpegCount = (p)->engines[3], .sharedOfaCount = (p)->engines[4]

API nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t instance, unsigned int constant, unsigned int engine,
                                                 nvmlComputeInstanceProfileInfo_t *info)
{
    CALL(INSTANCE, instance);
    struct profile *p = NULL;
    nvmlReturn_t found = find_compute(&call, constant, engine, &p);
    if (found == NVML_SUCCESS)
        *info = (nvmlComputeInstanceProfileInfo_t){COMMON_COMPUTE(p, constant)};
    return found;
}

#if DRIVER >= 530
API nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t instance, unsigned int constant, unsigned int engine,
                                                  nvmlComputeInstanceProfileInfo_v2_t *info)
{
    CALL(INSTANCE, instance);
    struct profile *p = NULL;
    nvmlReturn_t found = find_compute(&call, constant, engine, &p);
    if (found != NVML_SUCCESS)
        return found;
    if (info->version != NVML_STRUCT_VERSION(nvmlComputeInstanceProfileInfo_v2_t, 2U))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    *info = (nvmlComputeInstanceProfileInfo_v2_t){.version = info->version, COMMON_COMPUTE(p, constant)};
    char part[8] = "";
    if (compute_slices[constant] != p->slices)
        snprintf(part, sizeof part, "%uc.", compute_slices[constant] & 0xFU);
    char name[2 * TEXT];
    snprintf(name, sizeof name, "MIG%%20%s%s", part, strncmp(p->name, "MIG%20", 6) == 0 ? p->name + 6 : p->name);
    return answer_text(info->name, sizeof info->name, name, NULL);
}
#endif

static unsigned long used_slices(const struct instance *instance)
{
    unsigned long used = 0;
    for (unsigned int n = 0; n < instance->computes; n++)
        used |= mask_of(instance->compute[n].start, instance->compute[n].size);
    return used;
}

API nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvmlGpuInstance_t instance, unsigned int id, unsigned int *count)
{
    CALL(INSTANCE, instance);
    struct profile *p = NULL;
    nvmlReturn_t found = find_compute(&call, id, 0, &p);
    if (found == NVML_SUCCESS)
        *count = (p->slices - (unsigned int)__builtin_popcountl(used_slices(call.instance))) / compute_slices[id];
    return found;
}

/* A name for a position: the same place gets the same UUID again, as another profile too, unless the state says that UUIDs do
 * not repeat. What does not fill its GPU instance is told apart by where it sits in it. */
static void name_device(const struct gpu *gpu, const struct instance *instance, struct compute *compute, bool fills)
{
    char place[3 * TEXT];
    uint64_t hash[2] = {14695981039346656037ULL, 0x9E3779B97F4A7C15ULL};
    snprintf(place, sizeof place, "%s/%u/%u/%u/%u/%u", gpu->uuid, instance->start, instance->size,
             fills ? 0 : compute->start, fills ? 0 : compute->size, state.repeat ? 0 : ++state.serial);
    for (int n = 0; n < 2; n++)
        for (const char *at = place; *at != '\0'; at++)
            hash[n] = (hash[n] ^ (unsigned char)*at) * 1099511628211ULL;
    snprintf(compute->uuid, sizeof compute->uuid, "MIG-%08x-%04x-5%03x-8%03x-%012llx", (unsigned int)(hash[0] >> 32),
             (unsigned int)(hash[0] >> 16 & 0xFFFF), (unsigned int)(hash[0] & 0xFFF), (unsigned int)(hash[1] >> 52),
             (unsigned long long)(hash[1] & 0xFFFFFFFFFFFFULL));
}

static bool has_index(const struct gpu *gpu, unsigned int index)
{
    for (unsigned int n = 0; n < gpu->instances; n++)
        for (unsigned int m = 0; m < gpu->instance[n].computes; m++)
            if (gpu->instance[n].compute[m].index == index)
                return true;
    return false;
}

static bool has_compute(const struct instance *instance, unsigned int id)
{
    for (unsigned int n = 0; n < instance->computes; n++)
        if (instance->compute[n].id == id)
            return true;
    return false;
}

API nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t instance, unsigned int id, nvmlComputeInstance_t *made)
{
    CALL(INSTANCE, instance);
    struct profile *p = NULL;
    nvmlReturn_t found = find_compute(&call, id, 0, &p);
    if (found != NVML_SUCCESS)
        return found;
    struct compute new = {.profile = id, .size = compute_slices[id]};
    while (new.start + new.size <= p->slices && used_slices(call.instance) & mask_of(new.start, new.size))
        new.start++;
    if (new.start + new.size > p->slices || call.instance->computes >= MAX_COMPUTES)
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    while (has_index(call.gpu, new.index))
        new.index++;
    while (has_compute(call.instance, new.id))
        new.id++;
    name_device(call.gpu, call.instance, &new, new.size == p->slices);
    call.instance->compute[call.instance->computes++] = new;
    call.changed = true;
    *made = handle_of(COMPUTE_INSTANCE, call.number, call.instance->id, new.id);
    return NVML_SUCCESS;
}

API nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t instance, unsigned int id, nvmlComputeInstance_t *computes,
                                       unsigned int *count)
{
    CALL(INSTANCE, instance);
    struct profile *p = NULL;
    nvmlReturn_t found = find_compute(&call, id, 0, &p);
    if (found != NVML_SUCCESS)
        return found;
    *count = 0;
    EACH(struct compute, c, call.instance->compute, call.instance->computes)
        if (c->profile == id)
            computes[(*count)++] = handle_of(COMPUTE_INSTANCE, call.number, call.instance->id, c->id);
    return NVML_SUCCESS;
}

API nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance, unsigned int id, nvmlComputeInstance_t *compute)
{
    CALL(INSTANCE, instance);
    *compute = handle_of(COMPUTE_INSTANCE, call.number, call.instance->id, id);
    return has_compute(call.instance, id) ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

API nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t compute, nvmlComputeInstanceInfo_t *info)
{
    CALL(COMPUTE_INSTANCE, compute);
    *info = (nvmlComputeInstanceInfo_t){
        .device = handle_of(MIG, call.number, call.compute->index, 0),
        .gpuInstance = handle_of(INSTANCE, call.number, call.instance->id, 0),
        .id = call.compute->id,
        .profileId = call.compute->profile,
        .placement = {.start = call.compute->start, .size = call.compute->size},
    };
    return NVML_SUCCESS;
}

API nvmlComputeInstanceDestroy(nvmlComputeInstance_t compute)
{
    CALL(COMPUTE_INSTANCE, compute);
    for (int kind = 0; kind < KINDS_OF_WORK; kind++)
        if (call.instance->processes[kind] != 0)
            return NVML_ERROR_IN_USE;
    struct compute *end = call.instance->compute + call.instance->computes--;
    memmove(call.compute, call.compute + 1, (size_t)(end - call.compute - 1) * sizeof *end);
    call.changed = true;
    return NVML_SUCCESS;
}

/* -- MIG devices --------------------------------------------------------------------------------------------------- */

API nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is)
{
    CALL(GPU | MIG, device);
    *is = call.compute != NULL;
    return NVML_SUCCESS;
}

API nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id)
{
    CALL(MIG, device);
    *id = call.instance->id;
    return NVML_SUCCESS;
}

API nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id)
{
    CALL(MIG, device);
    *id = call.compute->id;
    return NVML_SUCCESS;
}

API nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device, nvmlDevice_t *parent)
{
    CALL(MIG, device);
    *parent = handle_of(GPU, call.number, 0, 0);
    return NVML_SUCCESS;
}

/* None with MIG mode off. */
API nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
    CALL(GPU, device);
    *count = 0;
    EACH(struct profile, p, call.gpu->profile, call.gpu->mig ? call.gpu->profiles : 0)
        *count = p->slices > *count ? p->slices : *count;
    return NVML_SUCCESS;
}

/* Indices have holes: "not found" is one, not the end. */
API nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig)
{
    CALL(GPU, device);
    if (!call.gpu->mig)
        return NVML_ERROR_NOT_SUPPORTED;
    *mig = handle_of(MIG, call.number, index & 0xFFF, 0);
    return has_index(call.gpu, index) ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

API nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
    CALL(GPU | MIG, device);
    if (call.compute == NULL)
        return NVML_ERROR_NOT_SUPPORTED;
    const struct profile *p = profile_by_id(call.gpu, call.instance->profile);
    *attributes = (nvmlDeviceAttributes_t){
        .multiprocessorCount = p->sms * call.compute->size / p->slices,
        .sharedCopyEngineCount = p->engines[0],
        .sharedDecoderCount = p->engines[1],
        .sharedEncoderCount = p->engines[2],
        .sharedJpegCount = p->engines[3],
        .sharedOfaCount = p->engines[4],
        .gpuInstanceSliceCount = p->slices,
        .computeInstanceSliceCount = call.compute->size,
        .memorySizeMB = p->memory,
    };
    return NVML_SUCCESS;
}

#endif
