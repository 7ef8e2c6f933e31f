/*
 * Small and valid values for the arguments that do not matter in cases of refused calls.
 */
#ifndef REFUSED_H
#define REFUSED_H

#include "cltest.h"

HELPER const size_t origin[3] = {0, 0, 0}, one[3] = {1, 1, 1}, four = 4;
HELPER char bytes[256];

HELPER const cl_image_format rgba = {CL_RGBA, CL_UNORM_INT8};

HELPER cl_image_desc plain(void)
{
    return (cl_image_desc){.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 4, .image_height = 4};
}

#endif
