/* Profiles of GPU instances, placements, and the room that is left. */
#include "state.h"

/* -- profiles ------------------------------------------------------------------------------------------------------ */

struct profile *profile_by_id(struct gpu *gpu, unsigned int id)
{
    EACH(struct profile, p, gpu->profile, gpu->profiles)
        if (p->id == id)
            return p;
    return NULL;
}

#if DRIVER >= 450

/* A constant asks, an id creates. Constants have holes ("not supported") and an end ("invalid argument"). */
static nvmlReturn_t by_constant(struct gpu *gpu, unsigned int constant, struct profile **found)
{
    if (constant >= state.limit)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (gpu->hiding && !gpu->mig)
        return NVML_ERROR_NOT_SUPPORTED;
    EACH(struct profile, p, gpu->profile, gpu->profiles)
        if (p->constant == constant) {
            *found = p;
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_SUPPORTED;
}

#define COMMON(p)                                                                                     \
    .id = (p)->id, .sliceCount = (p)->slices, .instanceCount = (p)->count, .multiprocessorCount = (p)->sms, \
    .copyEngineCount = (p)->engines[0], .decoderCount = (p)->engines[1], .encoderCount = (p)->engines[2],   \
    .jpegCount = (p)->engines[3], .ofaCount = (p)->engines[4], .memorySizeMB = (p)->memory

API nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int constant, nvmlGpuInstanceProfileInfo_t *info)
{
    CALL(GPU, device);
    struct profile *p = NULL;
    nvmlReturn_t found = by_constant(call.gpu, constant, &p);
    if (found == NVML_SUCCESS)
        *info = (nvmlGpuInstanceProfileInfo_t){COMMON(p)};
    return found;
}

#if DRIVER >= 530
/* Version 2 and 3 have the same size, so the number of the version decides. */
static nvmlReturn_t fill_profile(const struct profile *p, nvmlGpuInstanceProfileInfo_v2_t *info)
{
    unsigned int version = info->version;
    if (version == NVML_STRUCT_VERSION(nvmlGpuInstanceProfileInfo_v2_t, 2U)) {
        *info = (nvmlGpuInstanceProfileInfo_v2_t){.version = version, COMMON(p)};
        return answer_text(info->name, sizeof info->name, p->name, NULL);
    }
    if (version == NVML_STRUCT_VERSION(nvmlGpuInstanceProfileInfo_v3_t, 3U)) {
        nvmlGpuInstanceProfileInfo_v3_t *info3 = (nvmlGpuInstanceProfileInfo_v3_t *)info;
        *info3 = (nvmlGpuInstanceProfileInfo_v3_t){.version = version, COMMON(p), .capabilities = 0};
        return answer_text(info3->name, sizeof info3->name, p->name, NULL);
    }
    return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
}

API nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned int constant,
                                         nvmlGpuInstanceProfileInfo_v2_t *info)
{
    CALL(GPU, device);
    struct profile *p = NULL;
    nvmlReturn_t found = by_constant(call.gpu, constant, &p);
    return found == NVML_SUCCESS ? fill_profile(p, info) : found;
}
#endif

#if DRIVER >= 580
API nvmlDeviceGetGpuInstanceProfileInfoByIdV(nvmlDevice_t device, unsigned int id, nvmlGpuInstanceProfileInfo_v2_t *info)
{
    CALL(GPU, device);
    struct profile *p = call.gpu->hiding && !call.gpu->mig ? NULL : profile_by_id(call.gpu, id);
    return p ? fill_profile(p, info) : NVML_ERROR_NOT_SUPPORTED;
}
#endif

/* Without an array it only counts. */
API nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned int id,
                                                  nvmlGpuInstancePlacement_t *placements, unsigned int *count)
{
    CALL(GPU, device);
    struct profile *p = profile_by_id(call.gpu, id);
    if (p == NULL || (call.gpu->hiding && !call.gpu->mig))
        return NVML_ERROR_NOT_SUPPORTED;
    unsigned int found = 0;
    for (unsigned int start = 0; start < 64; start++)
        if (p->starts >> start & 1) {
            if (placements != NULL && found >= *count)
                return NVML_ERROR_INSUFFICIENT_SIZE;
            if (placements != NULL)
                placements[found] = (nvmlGpuInstancePlacement_t){.start = start, .size = p->size};
            found++;
        }
    *count = found;
    return NVML_SUCCESS;
}

#endif

/* -- room: placements do not overlap, engines do not exceed those of the best-equipped profile ------------------------ */

bool has_room(struct gpu *gpu, const struct profile *wanted, unsigned int start, unsigned int more, unsigned long mask)
{
    unsigned long taken = mask;
    unsigned int used[ENGINES] = {0}, most[ENGINES] = {0};
    EACH(struct instance, i, gpu->instance, gpu->instances) {
        const struct profile *p = profile_by_id(gpu, i->profile);
        taken |= mask_of(i->start, i->size);
        for (int e = 0; p != NULL && e < ENGINES; e++)
            used[e] += p->engines[e];
    }
    EACH(struct profile, p, gpu->profile, gpu->profiles)
        for (int e = 0; e < ENGINES; e++)
            most[e] = p->engines[e] > most[e] ? p->engines[e] : most[e];
    for (int e = 0; e < ENGINES; e++)
        if (used[e] + (more + 1) * wanted->engines[e] > most[e])
            return false;
    return (taken & mask_of(start, wanted->size)) == 0 && gpu->instances < MAX_INSTANCES;
}

#if DRIVER >= 450
API nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned int id, unsigned int *count)
{
    CALL(GPU, device);
    struct profile *p = profile_by_id(call.gpu, id);
    if (p == NULL || !call.gpu->mig)
        return NVML_ERROR_NOT_SUPPORTED;
    unsigned long taken = 0;
    *count = 0;
    for (unsigned int start = 0; start < 64; start++)
        if (p->starts >> start & 1 && has_room(call.gpu, p, start, *count, taken)) {
            taken |= mask_of(start, p->size);
            (*count)++;
        }
    return NVML_SUCCESS;
}
#endif
