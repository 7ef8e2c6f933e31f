/* Steps until each point's orbit leaves the circle of radius 2, for a share of the picture's rows:
 * row k of the launch is row first + k * stride of the picture. Results do not depend on whether a
 * device can multiply and add in one step. */
#pragma OPENCL FP_CONTRACT OFF

kernel void mandelbrot(global uint *steps, uint width, uint first, uint stride, uint limit,
                       float left, float top, float pixel)
{
    const uint x = get_global_id(0);
    const uint row = get_global_id(1);
    const float re = left + pixel * (float)x;
    const float im = top - pixel * (float)(first + row * stride);
    float zr = 0.0f, zi = 0.0f, rr = 0.0f, ii = 0.0f;
    uint n = 0;
    while (n < limit && rr + ii <= 4.0f) {
        zi = 2.0f * zr * zi + im;
        zr = rr - ii + re;
        rr = zr * zr;
        ii = zi * zi;
        ++n;
    }
    steps[(size_t)row * width + x] = n;
}
