# package: python3-gpyfft
# kind: a Python stack: pyopencl arrays, transformed by clFFT
import numpy as np
import pyopencl as cl
import pyopencl.array
from gpyfft import FFT

context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
data = (np.random.RandomState(2).rand(4, 256, 64) + 0j).astype(np.complex64)
device = cl.array.to_device(queue, data)
for event in FFT(context, queue, device, axes=(1, 2)).enqueue():
    event.wait()
print(np.allclose(device.get(), np.fft.fft2(data, axes=(1, 2)), rtol=1e-3, atol=1e-2))
