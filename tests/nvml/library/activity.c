/* GPM: how busy a GPU instance was between two samples. From Hopper on. */
#include <stdlib.h>

#include "state.h"

#if DRIVER >= 525

enum { HOPPER = 9 };

struct nvmlGpmSample_st {
    bool taken;
    unsigned int gpu, instance, sm, tensor, dram;
};

API nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *support)
{
    CALL(GPU, device);
    if (support->version != NVML_GPM_SUPPORT_VERSION)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    support->isSupportedDevice = call.gpu->major >= HOPPER;
    return NVML_SUCCESS;
}

API nvmlGpmSampleAlloc(nvmlGpmSample_t *sample)
{
    CALL(NONE, NULL);
    *sample = calloc(1, sizeof **sample);
    return *sample ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

API nvmlGpmSampleFree(nvmlGpmSample_t sample)
{
    CALL(NONE, NULL);
    free(sample);
    return NVML_SUCCESS;
}

API nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned int id, nvmlGpmSample_t sample)
{
    CALL(GPU, device);
    if (call.gpu->major < HOPPER)
        return NVML_ERROR_NOT_SUPPORTED;
    EACH(struct instance, i, call.gpu->instance, call.gpu->instances)
        if (i->id == id) {
            *sample = (struct nvmlGpmSample_st){true, call.number, id, i->sm, i->tensor, i->dram};
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

/* Figures in percent, each with a result of its own. */
API nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *get)
{
    CALL(NONE, NULL);
    if (get->version != NVML_GPM_METRICS_GET_VERSION)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    const struct nvmlGpmSample_st *first = get->sample1, *last = get->sample2;
    if (!first->taken || !last->taken || first->gpu != last->gpu || first->instance != last->instance)
        return NVML_ERROR_INVALID_ARGUMENT;
    EACH(nvmlGpmMetric_t, m, get->metrics, get->numMetrics) {
        m->nvmlReturn = NVML_SUCCESS;
        if (m->metricId == NVML_GPM_METRIC_SM_UTIL)
            m->value = last->sm / 10.0;
        else if (m->metricId == NVML_GPM_METRIC_ANY_TENSOR_UTIL)
            m->value = last->tensor / 10.0;
        else if (m->metricId == NVML_GPM_METRIC_DRAM_BW_UTIL)
            m->value = last->dram / 10.0;
        else
            m->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
    }
    return NVML_SUCCESS;
}

#endif
