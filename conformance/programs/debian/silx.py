# package: python3-silx
# kind: tools of synchrotrons: compression, a median filter, tomography
import numpy as np
from silx.opencl import medfilt
from silx.opencl.backprojection import Backprojection
from silx.opencl.codec.byte_offset import ByteOffset

random = np.random.RandomState(3)
data = random.poisson(20, (512, 512)).astype(np.int32)
codec = ByteOffset(data.nbytes, data.size)
encoded = codec.encode(data).get()
decoded = codec.decode(encoded.tobytes()).get().reshape(data.shape)
print(encoded.nbytes, (decoded == data).all())
print(medfilt.MedianFilter2D(data.shape).medfilt2d(data.astype(np.float32), (3, 3)).sum())
sinogram = random.rand(90, 128).astype(np.float32)
print("%.2f" % Backprojection(sinogram.shape).filtered_backprojection(sinogram).sum())
