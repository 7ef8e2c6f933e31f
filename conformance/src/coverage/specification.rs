//! The error codes of each function by the specification (OpenCL 3.0 API), except `CL_OUT_OF_RESOURCES`
//! and `CL_OUT_OF_HOST_MEMORY`. Every function may return these two, and no program can provoke them.
//!
//! This is not a list of functions, which `cl_headers` has. A function without a row has no code of its own.

/// A function and its codes, without the `CL_`.
pub(super) const ERRORS: &[(&str, &[&str])] = &[
    ("clGetPlatformIDs", &["INVALID_VALUE"]),
    ("clGetPlatformInfo", &["INVALID_PLATFORM", "INVALID_VALUE"]),
    (
        "clGetDeviceIDs",
        &[
            "INVALID_PLATFORM",
            "INVALID_DEVICE_TYPE",
            "INVALID_VALUE",
            "DEVICE_NOT_FOUND",
        ],
    ),
    ("clGetDeviceInfo", &["INVALID_DEVICE", "INVALID_VALUE"]),
    ("clGetDeviceAndHostTimer", TIMER),
    ("clGetHostTimer", TIMER),
    (
        "clCreateSubDevices",
        &[
            "INVALID_DEVICE",
            "INVALID_VALUE",
            "DEVICE_PARTITION_FAILED",
            "INVALID_DEVICE_PARTITION_COUNT",
        ],
    ),
    ("clRetainDevice", &["INVALID_DEVICE"]),
    ("clReleaseDevice", &["INVALID_DEVICE"]),
    (
        "clCreateContext",
        &[
            "INVALID_PLATFORM",
            "INVALID_PROPERTY",
            "INVALID_VALUE",
            "INVALID_DEVICE",
            "DEVICE_NOT_AVAILABLE",
        ],
    ),
    (
        "clCreateContextFromType",
        &[
            "INVALID_PLATFORM",
            "INVALID_PROPERTY",
            "INVALID_VALUE",
            "INVALID_DEVICE_TYPE",
            "DEVICE_NOT_AVAILABLE",
            "DEVICE_NOT_FOUND",
        ],
    ),
    ("clRetainContext", &["INVALID_CONTEXT"]),
    ("clReleaseContext", &["INVALID_CONTEXT"]),
    ("clGetContextInfo", &["INVALID_CONTEXT", "INVALID_VALUE"]),
    (
        "clSetContextDestructorCallback",
        &["INVALID_CONTEXT", "INVALID_VALUE"],
    ),
    ("clCreateCommandQueue", QUEUE),
    ("clCreateCommandQueueWithProperties", QUEUE),
    (
        "clSetDefaultDeviceCommandQueue",
        &[
            "INVALID_CONTEXT",
            "INVALID_DEVICE",
            "INVALID_OPERATION",
            "INVALID_COMMAND_QUEUE",
        ],
    ),
    ("clRetainCommandQueue", &["INVALID_COMMAND_QUEUE"]),
    ("clReleaseCommandQueue", &["INVALID_COMMAND_QUEUE"]),
    (
        "clGetCommandQueueInfo",
        &["INVALID_COMMAND_QUEUE", "INVALID_VALUE"],
    ),
    (
        "clSetCommandQueueProperty",
        &["INVALID_COMMAND_QUEUE", "INVALID_VALUE"],
    ),
    (
        "clCreateBuffer",
        &[
            "INVALID_CONTEXT",
            "INVALID_VALUE",
            "INVALID_BUFFER_SIZE",
            "INVALID_HOST_PTR",
        ],
    ),
    (
        "clCreateBufferWithProperties",
        &[
            "INVALID_CONTEXT",
            "INVALID_PROPERTY",
            "INVALID_VALUE",
            "INVALID_BUFFER_SIZE",
            "INVALID_HOST_PTR",
        ],
    ),
    (
        "clCreateSubBuffer",
        &[
            "INVALID_MEM_OBJECT",
            "INVALID_VALUE",
            "INVALID_BUFFER_SIZE",
            "MISALIGNED_SUB_BUFFER_OFFSET",
        ],
    ),
    ("clRetainMemObject", &["INVALID_MEM_OBJECT"]),
    ("clReleaseMemObject", &["INVALID_MEM_OBJECT"]),
    (
        "clGetMemObjectInfo",
        &["INVALID_MEM_OBJECT", "INVALID_VALUE"],
    ),
    (
        "clSetMemObjectDestructorCallback",
        &["INVALID_MEM_OBJECT", "INVALID_VALUE"],
    ),
    ("clEnqueueReadBuffer", TRANSFER),
    ("clEnqueueWriteBuffer", TRANSFER),
    ("clEnqueueReadBufferRect", TRANSFER),
    ("clEnqueueWriteBufferRect", TRANSFER),
    ("clEnqueueCopyBuffer", COPY),
    ("clEnqueueCopyBufferRect", COPY),
    ("clEnqueueFillBuffer", ON_MEMORY),
    ("clEnqueueMapBuffer", MAP),
    ("clCreateImage", IMAGE),
    ("clCreateImage2D", IMAGE_OLD),
    ("clCreateImage3D", IMAGE_OLD),
    ("clCreateImageWithProperties", IMAGE),
    (
        "clGetSupportedImageFormats",
        &["INVALID_CONTEXT", "INVALID_VALUE"],
    ),
    ("clGetImageInfo", &["INVALID_MEM_OBJECT", "INVALID_VALUE"]),
    ("clEnqueueReadImage", TRANSFER),
    ("clEnqueueWriteImage", TRANSFER),
    (
        "clEnqueueCopyImage",
        &[
            "INVALID_COMMAND_QUEUE",
            "INVALID_CONTEXT",
            "INVALID_MEM_OBJECT",
            "IMAGE_FORMAT_MISMATCH",
            "INVALID_VALUE",
            "INVALID_EVENT_WAIT_LIST",
            "MEM_COPY_OVERLAP",
        ],
    ),
    ("clEnqueueCopyImageToBuffer", ON_MEMORY),
    ("clEnqueueCopyBufferToImage", ON_MEMORY),
    ("clEnqueueFillImage", ON_MEMORY),
    ("clEnqueueMapImage", MAP),
    ("clEnqueueUnmapMemObject", ON_MEMORY),
    ("clEnqueueMigrateMemObjects", ON_MEMORY),
    (
        "clCreatePipe",
        &[
            "INVALID_CONTEXT",
            "INVALID_VALUE",
            "INVALID_PIPE_SIZE",
            "INVALID_OPERATION",
        ],
    ),
    ("clGetPipeInfo", &["INVALID_MEM_OBJECT", "INVALID_VALUE"]),
    ("clEnqueueSVMFree", SVM),
    (
        "clEnqueueSVMMemcpy",
        &[
            "INVALID_COMMAND_QUEUE",
            "INVALID_OPERATION",
            "INVALID_CONTEXT",
            "INVALID_EVENT_WAIT_LIST",
            "INVALID_VALUE",
            "MEM_COPY_OVERLAP",
        ],
    ),
    ("clEnqueueSVMMemFill", SVM),
    ("clEnqueueSVMMap", SVM),
    ("clEnqueueSVMUnmap", SVM),
    ("clEnqueueSVMMigrateMem", SVM),
    ("clCreateSampler", SAMPLER),
    ("clCreateSamplerWithProperties", SAMPLER),
    ("clRetainSampler", &["INVALID_SAMPLER"]),
    ("clReleaseSampler", &["INVALID_SAMPLER"]),
    ("clGetSamplerInfo", &["INVALID_SAMPLER", "INVALID_VALUE"]),
    (
        "clCreateProgramWithSource",
        &["INVALID_CONTEXT", "INVALID_VALUE"],
    ),
    (
        "clCreateProgramWithIL",
        &["INVALID_CONTEXT", "INVALID_OPERATION", "INVALID_VALUE"],
    ),
    (
        "clCreateProgramWithBinary",
        &[
            "INVALID_CONTEXT",
            "INVALID_VALUE",
            "INVALID_DEVICE",
            "INVALID_BINARY",
        ],
    ),
    (
        "clCreateProgramWithBuiltInKernels",
        &["INVALID_CONTEXT", "INVALID_VALUE", "INVALID_DEVICE"],
    ),
    ("clRetainProgram", &["INVALID_PROGRAM"]),
    ("clReleaseProgram", &["INVALID_PROGRAM"]),
    (
        "clSetProgramReleaseCallback",
        &["INVALID_PROGRAM", "INVALID_OPERATION", "INVALID_VALUE"],
    ),
    (
        "clSetProgramSpecializationConstant",
        &[
            "INVALID_PROGRAM",
            "INVALID_OPERATION",
            "INVALID_SPEC_ID",
            "INVALID_VALUE",
        ],
    ),
    (
        "clBuildProgram",
        &[
            "INVALID_PROGRAM",
            "INVALID_VALUE",
            "INVALID_DEVICE",
            "INVALID_BINARY",
            "INVALID_BUILD_OPTIONS",
            "COMPILER_NOT_AVAILABLE",
            "BUILD_PROGRAM_FAILURE",
            "INVALID_OPERATION",
        ],
    ),
    (
        "clCompileProgram",
        &[
            "INVALID_PROGRAM",
            "INVALID_VALUE",
            "INVALID_DEVICE",
            "INVALID_COMPILER_OPTIONS",
            "COMPILER_NOT_AVAILABLE",
            "COMPILE_PROGRAM_FAILURE",
            "INVALID_OPERATION",
        ],
    ),
    (
        "clLinkProgram",
        &[
            "INVALID_CONTEXT",
            "INVALID_VALUE",
            "INVALID_PROGRAM",
            "INVALID_DEVICE",
            "INVALID_LINKER_OPTIONS",
            "INVALID_OPERATION",
            "LINKER_NOT_AVAILABLE",
            "LINK_PROGRAM_FAILURE",
        ],
    ),
    ("clUnloadPlatformCompiler", &["INVALID_PLATFORM"]),
    (
        "clGetProgramInfo",
        &[
            "INVALID_PROGRAM",
            "INVALID_VALUE",
            "INVALID_PROGRAM_EXECUTABLE",
        ],
    ),
    (
        "clGetProgramBuildInfo",
        &["INVALID_DEVICE", "INVALID_VALUE", "INVALID_PROGRAM"],
    ),
    (
        "clCreateKernel",
        &[
            "INVALID_PROGRAM",
            "INVALID_PROGRAM_EXECUTABLE",
            "INVALID_KERNEL_NAME",
            "INVALID_KERNEL_DEFINITION",
            "INVALID_VALUE",
        ],
    ),
    (
        "clCreateKernelsInProgram",
        &[
            "INVALID_PROGRAM",
            "INVALID_PROGRAM_EXECUTABLE",
            "INVALID_VALUE",
        ],
    ),
    ("clCloneKernel", &["INVALID_KERNEL"]),
    ("clRetainKernel", &["INVALID_KERNEL"]),
    ("clReleaseKernel", &["INVALID_KERNEL"]),
    (
        "clSetKernelArg",
        &[
            "INVALID_KERNEL",
            "INVALID_ARG_INDEX",
            "INVALID_ARG_VALUE",
            "INVALID_MEM_OBJECT",
            "INVALID_SAMPLER",
            "INVALID_DEVICE_QUEUE",
            "INVALID_ARG_SIZE",
        ],
    ),
    (
        "clSetKernelArgSVMPointer",
        &[
            "INVALID_KERNEL",
            "INVALID_OPERATION",
            "INVALID_ARG_INDEX",
            "INVALID_ARG_VALUE",
        ],
    ),
    (
        "clSetKernelExecInfo",
        &["INVALID_KERNEL", "INVALID_OPERATION", "INVALID_VALUE"],
    ),
    ("clGetKernelInfo", &["INVALID_KERNEL", "INVALID_VALUE"]),
    (
        "clGetKernelWorkGroupInfo",
        &["INVALID_DEVICE", "INVALID_KERNEL", "INVALID_VALUE"],
    ),
    (
        "clGetKernelSubGroupInfo",
        &[
            "INVALID_DEVICE",
            "INVALID_KERNEL",
            "INVALID_VALUE",
            "INVALID_OPERATION",
        ],
    ),
    (
        "clGetKernelArgInfo",
        &[
            "INVALID_KERNEL",
            "INVALID_ARG_INDEX",
            "INVALID_VALUE",
            "KERNEL_ARG_INFO_NOT_AVAILABLE",
        ],
    ),
    (
        "clGetKernelSuggestedLocalWorkSize",
        &[
            "INVALID_COMMAND_QUEUE",
            "INVALID_KERNEL",
            "INVALID_CONTEXT",
            "INVALID_PROGRAM_EXECUTABLE",
            "INVALID_KERNEL_ARGS",
            "INVALID_WORK_DIMENSION",
            "INVALID_GLOBAL_WORK_SIZE",
            "INVALID_VALUE",
            "INVALID_GLOBAL_OFFSET",
        ],
    ),
    (
        "clEnqueueNDRangeKernel",
        &[
            "INVALID_PROGRAM_EXECUTABLE",
            "INVALID_COMMAND_QUEUE",
            "INVALID_KERNEL",
            "INVALID_CONTEXT",
            "INVALID_KERNEL_ARGS",
            "INVALID_WORK_DIMENSION",
            "INVALID_GLOBAL_WORK_SIZE",
            "INVALID_GLOBAL_OFFSET",
            "INVALID_WORK_GROUP_SIZE",
            "INVALID_WORK_ITEM_SIZE",
            "INVALID_EVENT_WAIT_LIST",
        ],
    ),
    (
        "clEnqueueTask",
        &[
            "INVALID_COMMAND_QUEUE",
            "INVALID_KERNEL",
            "INVALID_CONTEXT",
            "INVALID_KERNEL_ARGS",
            "INVALID_EVENT_WAIT_LIST",
        ],
    ),
    (
        "clEnqueueNativeKernel",
        &["INVALID_COMMAND_QUEUE", "INVALID_OPERATION"],
    ),
    ("clCreateUserEvent", &["INVALID_CONTEXT"]),
    (
        "clSetUserEventStatus",
        &["INVALID_EVENT", "INVALID_VALUE", "INVALID_OPERATION"],
    ),
    (
        "clWaitForEvents",
        &[
            "INVALID_VALUE",
            "INVALID_CONTEXT",
            "INVALID_EVENT",
            "EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST",
        ],
    ),
    ("clGetEventInfo", &["INVALID_VALUE", "INVALID_EVENT"]),
    ("clSetEventCallback", &["INVALID_EVENT", "INVALID_VALUE"]),
    ("clRetainEvent", &["INVALID_EVENT"]),
    ("clReleaseEvent", &["INVALID_EVENT"]),
    (
        "clGetEventProfilingInfo",
        &[
            "PROFILING_INFO_NOT_AVAILABLE",
            "INVALID_VALUE",
            "INVALID_EVENT",
        ],
    ),
    ("clEnqueueMarkerWithWaitList", LISTED),
    ("clEnqueueBarrierWithWaitList", LISTED),
    (
        "clEnqueueMarker",
        &["INVALID_COMMAND_QUEUE", "INVALID_VALUE"],
    ),
    ("clEnqueueBarrier", &["INVALID_COMMAND_QUEUE"]),
    (
        "clEnqueueWaitForEvents",
        &[
            "INVALID_COMMAND_QUEUE",
            "INVALID_CONTEXT",
            "INVALID_VALUE",
            "INVALID_EVENT",
        ],
    ),
    ("clFlush", &["INVALID_COMMAND_QUEUE"]),
    ("clFinish", &["INVALID_COMMAND_QUEUE"]),
];

const TIMER: &[&str] = &["INVALID_DEVICE", "INVALID_VALUE", "INVALID_OPERATION"];

const QUEUE: &[&str] = &[
    "INVALID_CONTEXT",
    "INVALID_DEVICE",
    "INVALID_VALUE",
    "INVALID_QUEUE_PROPERTIES",
];

const TRANSFER: &[&str] = &[
    "INVALID_COMMAND_QUEUE",
    "INVALID_CONTEXT",
    "INVALID_MEM_OBJECT",
    "INVALID_VALUE",
    "INVALID_EVENT_WAIT_LIST",
    "INVALID_OPERATION",
    "EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST",
];

const COPY: &[&str] = &[
    "INVALID_COMMAND_QUEUE",
    "INVALID_CONTEXT",
    "INVALID_MEM_OBJECT",
    "INVALID_VALUE",
    "INVALID_EVENT_WAIT_LIST",
    "MEM_COPY_OVERLAP",
];

const MAP: &[&str] = &[
    "INVALID_COMMAND_QUEUE",
    "INVALID_CONTEXT",
    "INVALID_MEM_OBJECT",
    "INVALID_VALUE",
    "INVALID_EVENT_WAIT_LIST",
    "INVALID_OPERATION",
];

const IMAGE: &[&str] = &[
    "INVALID_CONTEXT",
    "INVALID_VALUE",
    "INVALID_IMAGE_FORMAT_DESCRIPTOR",
    "INVALID_IMAGE_DESCRIPTOR",
    "INVALID_IMAGE_SIZE",
    "INVALID_HOST_PTR",
    "IMAGE_FORMAT_NOT_SUPPORTED",
];

const IMAGE_OLD: &[&str] = &[
    "INVALID_CONTEXT",
    "INVALID_VALUE",
    "INVALID_IMAGE_FORMAT_DESCRIPTOR",
    "INVALID_IMAGE_SIZE",
    "INVALID_HOST_PTR",
    "IMAGE_FORMAT_NOT_SUPPORTED",
];

/// Codes of most commands on memory objects.
const ON_MEMORY: &[&str] = &[
    "INVALID_COMMAND_QUEUE",
    "INVALID_CONTEXT",
    "INVALID_MEM_OBJECT",
    "INVALID_VALUE",
    "INVALID_EVENT_WAIT_LIST",
];

const SAMPLER: &[&str] = &["INVALID_CONTEXT", "INVALID_VALUE", "INVALID_OPERATION"];

const SVM: &[&str] = &[
    "INVALID_COMMAND_QUEUE",
    "INVALID_OPERATION",
    "INVALID_VALUE",
    "INVALID_EVENT_WAIT_LIST",
];

const LISTED: &[&str] = &[
    "INVALID_COMMAND_QUEUE",
    "INVALID_CONTEXT",
    "INVALID_EVENT_WAIT_LIST",
];
