// Rows of a product of matrices over the field of 61 elements. The elements are whole numbers in floats. 4,096 products
// of two elements and a remainder are below 2^24, so every sum is exact, in any order and with or without fma.
__kernel void multiply(__global const float *a, __global const float *b, __global float *c, uint n)
{
    const size_t column = get_global_id(0);
    const size_t row = get_global_id(1);
    float sum = 0.0f;
    for (uint from = 0; from < n; from += 4096) {
        const uint to = min(from + 4096, n);
        for (uint k = from; k < to; k++)
            sum += a[row * n + k] * b[(size_t)k * n + column];
        sum = fmod(sum, 61.0f);
    }
    c[row * n + column] = sum;
}
