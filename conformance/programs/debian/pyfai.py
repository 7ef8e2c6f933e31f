# package: python3-pyfai
# kind: azimuthal integration of diffraction images
import numpy as np
import pyFAI
from pyFAI.detectors import Detector

detector = Detector(1e-4, 1e-4, max_shape=(256, 256))
integrator = pyFAI.AzimuthalIntegrator(dist=0.1, poni1=0.01, poni2=0.01, detector=detector, wavelength=1e-10)
image = np.random.RandomState(4).poisson(100, (256, 256)).astype(np.float32)
result = integrator.integrate1d(image, 200, method=("bbox", "csr", "opencl"))
print(result.method.impl_lower, "%.2f" % np.nansum(result.intensity))
