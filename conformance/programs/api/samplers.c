/* Samplers: creation, information, errors. Kernels that use one are in images.c. */
#define CL_TARGET_OPENCL_VERSION 300
#include "../cltest.h"

CASE(sampler_info)
{
    needs_images();
    cl_sampler sampler =
        clCreateSampler(context, CL_TRUE, CL_ADDRESS_MIRRORED_REPEAT, CL_FILTER_LINEAR, &err);
    OK(err);
    cl_uint count = 0, addressing = 0, filter = 0;
    cl_bool normalised = CL_FALSE;
    cl_context owner = NULL;
    OK(clRetainSampler(sampler));
    OK(clGetSamplerInfo(sampler, CL_SAMPLER_REFERENCE_COUNT, sizeof count, &count, NULL));
    OK(clGetSamplerInfo(sampler, CL_SAMPLER_CONTEXT, sizeof owner, &owner, NULL));
    OK(clGetSamplerInfo(sampler, CL_SAMPLER_NORMALIZED_COORDS, sizeof normalised, &normalised, NULL));
    OK(clGetSamplerInfo(sampler, CL_SAMPLER_ADDRESSING_MODE, sizeof addressing, &addressing, NULL));
    OK(clGetSamplerInfo(sampler, CL_SAMPLER_FILTER_MODE, sizeof filter, &filter, NULL));
    EQUAL(count, 2);
    EQUAL(normalised, CL_TRUE);
    EQUAL(addressing, CL_ADDRESS_MIRRORED_REPEAT);
    EQUAL(filter, CL_FILTER_LINEAR);
    CHECK(owner == context);
    INFO_RULES(clGetSamplerInfo, sampler, CL_SAMPLER_FILTER_MODE);
    EXPECT(clGetSamplerInfo(sampler, UNKNOWN_INFO, 0, NULL, NULL), CL_INVALID_VALUE);
    OK(clReleaseSampler(sampler));
    OK(clReleaseSampler(sampler));
}

SPEC_CASE(sampler_errors)
{
    needs_images();
    REFUSED(clCreateSampler(context, CL_TRUE, 0x9999, CL_FILTER_NEAREST, &err), CL_INVALID_VALUE);
    REFUSED(clCreateSampler(context, CL_TRUE, CL_ADDRESS_CLAMP, 0x9999, &err), CL_INVALID_VALUE);
    EXPECT(clRetainSampler(NULL), CL_INVALID_SAMPLER);
    EXPECT(clReleaseSampler(NULL), CL_INVALID_SAMPLER);
}
