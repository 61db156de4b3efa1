/* GPU instances. */
#include <string.h>

#include "state.h"

#if DRIVER >= 450

/* Ids: a run per size, the largest size first; in it the lowest that is free. So they tell nothing about the placement. */
static unsigned int free_id(const struct gpu *gpu, const struct profile *wanted)
{
    unsigned int id = 0;
    for (unsigned int size = 64; size > wanted->size; size--) {
        unsigned int most = 0;
        for (unsigned int n = 0; n < gpu->profiles; n++) {
            unsigned int starts = (unsigned int)__builtin_popcountl(gpu->profile[n].starts);
            most = gpu->profile[n].size == size && starts > most ? starts : most;
        }
        id += most;
    }
    for (unsigned int n = 0; n < gpu->instances; n++)
        if (gpu->instance[n].id == id) {
            id++;
            n = (unsigned int)-1; /* look at all of them again */
        }
    return id;
}

static nvmlReturn_t create(struct call *call, struct profile *p, unsigned int start, nvmlGpuInstance_t *made)
{
    if (!has_room(call->gpu, p, start, 0, 0))
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    unsigned int id = free_id(call->gpu, p);
    call->gpu->instance[call->gpu->instances++] =
        (struct instance){.id = id, .profile = p->id, .start = start, .size = p->size, .used = 13};
    call->changed = true;
    *made = handle_of(INSTANCE, call->number, id, 0);
    return NVML_SUCCESS;
}

API nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *made)
{
    CALL(GPU, device);
    struct profile *p = profile_by_id(call.gpu, id);
    if (p == NULL || !call.gpu->mig)
        return NVML_ERROR_NOT_SUPPORTED;
    for (unsigned int start = 0; start < 64; start++)
        if (p->starts >> start & 1 && has_room(call.gpu, p, start, 0, 0))
            return create(&call, p, start, made);
    return NVML_ERROR_INSUFFICIENT_RESOURCES;
}

#if DRIVER >= 495
API nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned int id,
                                             const nvmlGpuInstancePlacement_t *placement, nvmlGpuInstance_t *made)
{
    CALL(GPU, device);
    struct profile *p = profile_by_id(call.gpu, id);
    if (p == NULL || !call.gpu->mig)
        return NVML_ERROR_NOT_SUPPORTED;
    if (placement->start >= 64 || !(p->starts >> placement->start & 1) || placement->size != p->size)
        return NVML_ERROR_INVALID_ARGUMENT;
    return create(&call, p, placement->start, made);
}
#endif

API nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *instances, unsigned int *count)
{
    CALL(GPU, device);
    if (!call.gpu->mig || profile_by_id(call.gpu, id) == NULL)
        return NVML_ERROR_NOT_SUPPORTED;
    *count = 0;
    for (unsigned int start = 0; start < 64; start++)
        EACH(struct instance, i, call.gpu->instance, call.gpu->instances)
            if (i->profile == id && i->start == start)
                instances[(*count)++] = handle_of(INSTANCE, call.number, i->id, 0);
    return NVML_SUCCESS;
}

API nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *instance)
{
    CALL(GPU, device);
    if (!call.gpu->mig)
        return NVML_ERROR_NOT_SUPPORTED;
    EACH(struct instance, i, call.gpu->instance, call.gpu->instances)
        if (i->id == id) {
            *instance = handle_of(INSTANCE, call.number, id, 0);
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

API nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info)
{
    CALL(INSTANCE, instance);
    *info = (nvmlGpuInstanceInfo_t){
        .device = handle_of(GPU, call.number, 0, 0),
        .id = call.instance->id,
        .profileId = call.instance->profile,
        .placement = {.start = call.instance->start, .size = call.instance->size},
    };
    return NVML_SUCCESS;
}

API nvmlGpuInstanceDestroy(nvmlGpuInstance_t instance)
{
    CALL(INSTANCE, instance);
    if (call.instance->computes > 0)
        return NVML_ERROR_IN_USE;
    struct instance *end = call.gpu->instance + call.gpu->instances--;
    memmove(call.instance, call.instance + 1, (size_t)(end - call.instance - 1) * sizeof *end);
    call.changed = true;
    return NVML_SUCCESS;
}

#endif
