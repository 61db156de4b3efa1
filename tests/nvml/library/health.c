/* What a GPU announces, counts and needs: critical errors (XID), memory errors, rows to be remapped, a recovery. */
#include <string.h>

#include "state.h"

#if DRIVER >= 450

/* One set per process is enough here: bit n says that events of GPU n are wanted. */
static unsigned int wanted;
static int set;

API nvmlEventSetCreate(nvmlEventSet_t *made)
{
    CALL(NONE, NULL);
    wanted = 0;
    *made = (nvmlEventSet_t)&set;
    return NVML_SUCCESS;
}

API nvmlEventSetFree(nvmlEventSet_t given)
{
    CALL(NONE, NULL);
    wanted = 0;
    return (void *)given == &set ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

API nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t given)
{
    CALL(GPU, device);
    if ((void *)given != &set || types != nvmlEventTypeXidCriticalError)
        return NVML_ERROR_INVALID_ARGUMENT;
    wanted |= 1U << call.number;
    return NVML_SUCCESS;
}

/* Also of a GPU that is lost by now. Nobody here has the time to wait for one that may come. */
API nvmlEventSetWait_v2(nvmlEventSet_t given, nvmlEventData_t *data, unsigned int milliseconds)
{
    CALL(NONE, NULL);
    (void)milliseconds;
    if ((void *)given != &set)
        return NVML_ERROR_INVALID_ARGUMENT;
    EACH(struct event, e, state.event, state.events)
        if (wanted >> e->gpu & 1) {
            *data = (nvmlEventData_t){
                .device = handle_of(GPU, e->gpu, 0, 0),
                .eventType = nvmlEventTypeXidCriticalError,
                .eventData = e->xid,
                .gpuInstanceId = e->instance,
                .computeInstanceId = e->compute,
            };
            struct event *end = state.event + state.events--;
            memmove(e, e + 1, (size_t)(end - e - 1) * sizeof *end);
            call.changed = true;
            return NVML_SUCCESS;
        }
    return NVML_ERROR_TIMEOUT;
}

API nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter,
                                unsigned long long *count)
{
    CALL(GPU, device);
    if (!call.gpu->capable)
        return NVML_ERROR_NOT_SUPPORTED;
    *count = type == NVML_MEMORY_ERROR_TYPE_UNCORRECTED && counter == NVML_VOLATILE_ECC ? call.gpu->ecc : 0;
    return NVML_SUCCESS;
}

API nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrected, unsigned int *uncorrected,
                              unsigned int *pending, unsigned int *failed)
{
    CALL(GPU, device);
    if (!call.gpu->capable)
        return NVML_ERROR_NOT_SUPPORTED;
    *corrected = 0;
    *uncorrected = call.gpu->remap;
    *pending = call.gpu->remap > 0;
    *failed = call.gpu->remapfail;
    return NVML_SUCCESS;
}

/* Fields are asked for together and answered one by one. Only one of them is known here. */
API nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
    CALL(GPU, device);
    EACH(nvmlFieldValue_t, v, values, count) {
        v->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
#if DRIVER >= 560
        if (v->fieldId == NVML_FI_DEV_GET_GPU_RECOVERY_ACTION) {
            v->nvmlReturn = NVML_SUCCESS;
            v->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
            v->value.uiVal = call.gpu->recovery;
        }
#endif
    }
    return NVML_SUCCESS;
}

#endif
