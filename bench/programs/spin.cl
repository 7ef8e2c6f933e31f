// Computes for as long as `steps` say. The result depends on all of them, so no compiler leaves them out.
__kernel void spin(__global uint *out, uint steps)
{
    uint value = steps;
    for (uint step = 0; step < steps; step++)
        value = value * 1664525u + 1013904223u;
    out[0] = value;
}
