//! Functions that are refused by design, because the network makes them impossible, with the reasons.

/// A function, or all functions of an extension, that always return one code.
pub(super) struct Refused {
    /// The name of a function or an extension.
    pub(super) what: &'static str,
    /// The code that it returns, without the `CL_`.
    pub(super) code: &'static str,
    /// The reason, which the limits in `icd/README.md` have as well.
    pub(super) why: &'static str,
}

/// The reason for functions on objects of a graphics API.
const GRAPHICS: &str = "objects of a graphics API are in the application's own machine";

/// All refused functions.
pub(super) const ALL: &[Refused] = &[
    Refused {
        what: "clEnqueueNativeKernel",
        code: "INVALID_OPERATION",
        why: "a function of the application's process cannot run on another machine",
    },
    Refused {
        what: "clSetCommandQueueProperty",
        code: "INVALID_OPERATION",
        why: "for devices of OpenCL 1.0, which cannot be asked for more; deprecated by 1.1",
    },
    Refused {
        what: "clCreateSubDevicesEXT",
        code: "INVALID_VALUE",
        why: "of cl_ext_device_fission, which OpenCL 1.2 has superseded and which is not offered",
    },
    Refused {
        what: "clSetProgramReleaseCallback",
        code: "INVALID_OPERATION",
        why: "deprecated by 3.0, which lets a driver refuse it",
    },
    graphics("cl_khr_gl_sharing"),
    graphics("cl_khr_gl_event"),
    graphics("cl_khr_d3d10_sharing"),
    graphics("cl_khr_d3d11_sharing"),
    graphics("cl_khr_dx9_media_sharing"),
    graphics("cl_khr_egl_image"),
    graphics("cl_khr_egl_event"),
];

const fn graphics(extension: &'static str) -> Refused {
    Refused {
        what: extension,
        code: "INVALID_OPERATION",
        why: GRAPHICS,
    }
}
