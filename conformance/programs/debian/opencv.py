# package: python3-opencv
# kind: an image pipeline: OpenCV's transparent API over its own kernels
import os

os.environ["OPENCV_OPENCL_DEVICE"] = ":CPU:"
import cv2
import numpy as np

cv2.ocl.setUseOpenCL(True)
print("OpenCL:", cv2.ocl.haveOpenCL() and cv2.ocl.useOpenCL())
random = np.random.RandomState(1)
picture = cv2.UMat(random.randint(0, 255, (480, 640, 3), dtype=np.uint8))
grey = cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY)
blurred = cv2.GaussianBlur(grey, (7, 7), 1.5)
small = cv2.resize(blurred, (200, 150))
edges = cv2.Canny(small, 50, 150)
eroded = cv2.erode(small, np.ones((3, 3), np.uint8))
for what in (grey, blurred, small, edges, eroded):
    print(int(what.get().astype(np.int64).sum()))
one, two = (cv2.UMat(random.rand(64, 64).astype(np.float32)) for _ in range(2))
print("%.3f" % cv2.gemm(one, two, 1, None, 0).get().sum())
print("%.2f" % abs(cv2.dft(cv2.UMat(random.rand(256, 256).astype(np.float32))).get()).sum())
