/* List-mode OSEM: what each event of a subset says about the image, and what all of them do to it.
 *
 * The image has nx x ny x nz voxels of side 1, centred on the origin. An event is a line from one
 * point of the scanner's cylinder to another: two float4, the fourth components unused. */

/* Siddon's way of following a line through the voxels, each step to the next plane it crosses. */
struct walk {
    float at, end;        /* where along the line, 0 to 1: now, and where it leaves the image */
    float tx, ty, tz;     /* where it crosses the next plane of each axis */
    float dx, dy, dz;     /* from plane to plane */
    int x, y, z;          /* the voxel that it is in */
    int sx, sy, sz;       /* which way it goes */
    float length;
};

/* Where the line enters and leaves the slab of an axis. */
static void clip(float from, float way, float half_size, float *begin, float *end)
{
    if (way == 0.0f) {
        if (fabs(from) >= half_size)
            *end = -1.0f;
        return;
    }
    const float a = (-half_size - from) / way, b = (half_size - from) / way;
    *begin = fmax(*begin, fmin(a, b));
    *end = fmin(*end, fmax(a, b));
}

static void axis(float from, float way, int size, float begin, int *index, int *step, float *next,
                 float *delta)
{
    const float half_size = 0.5f * (float)size;
    const int voxel = (int)floor(from + begin * way + half_size);
    *index = clamp(voxel, 0, size - 1);
    *step = way > 0.0f ? 1 : -1;
    const float plane = (float)(*index + (way > 0.0f ? 1 : 0)) - half_size;
    *next = way == 0.0f ? INFINITY : (plane - from) / way;
    *delta = way == 0.0f ? INFINITY : 1.0f / fabs(way);
}

static struct walk start(float4 from, float4 to, int nx, int ny, int nz)
{
    struct walk walk;
    const float wx = to.x - from.x, wy = to.y - from.y, wz = to.z - from.z;
    walk.at = 0.0f;
    walk.end = 1.0f;
    clip(from.x, wx, 0.5f * (float)nx, &walk.at, &walk.end);
    clip(from.y, wy, 0.5f * (float)ny, &walk.at, &walk.end);
    clip(from.z, wz, 0.5f * (float)nz, &walk.at, &walk.end);
    axis(from.x, wx, nx, walk.at, &walk.x, &walk.sx, &walk.tx, &walk.dx);
    axis(from.y, wy, ny, walk.at, &walk.y, &walk.sy, &walk.ty, &walk.dy);
    axis(from.z, wz, nz, walk.at, &walk.z, &walk.sz, &walk.tz, &walk.dz);
    walk.length = sqrt(wx * wx + wy * wy + wz * wz);
    return walk;
}

/* The next voxel and the length within it; 0 at the end. */
static int next(struct walk *walk, int nx, int ny, int nz, uint *voxel, float *length)
{
    if (walk->at >= walk->end || walk->x < 0 || walk->x >= nx || walk->y < 0 || walk->y >= ny ||
        walk->z < 0 || walk->z >= nz)
        return 0;
    const float until = fmin(fmin(walk->tx, walk->ty), fmin(walk->tz, walk->end));
    *voxel = ((uint)walk->z * ny + walk->y) * nx + walk->x;
    *length = fmax(until - walk->at, 0.0f) * walk->length;
    if (until == walk->tx) {
        walk->x += walk->sx;
        walk->tx += walk->dx;
    } else if (until == walk->ty) {
        walk->y += walk->sy;
        walk->ty += walk->dy;
    } else if (until == walk->tz) {
        walk->z += walk->sz;
        walk->tz += walk->dz;
    }
    walk->at = until;
    return 1;
}

static void add_to(volatile global float *target, float value)
{
    volatile global uint *word = (volatile global uint *)target;
    uint before = *word, seen;
    do {
        seen = before;
        before = atomic_cmpxchg(word, seen, as_uint(as_float(seen) + value));
    } while (before != seen);
}

/* The sum of the image along a line. */
static float project(global const float *image, float4 from, float4 to, int nx, int ny, int nz)
{
    struct walk walk = start(from, to, nx, ny, nz);
    float sum = 0.0f, length;
    uint voxel;
    while (next(&walk, nx, ny, nz, &voxel, &length))
        sum += length * image[voxel];
    return sum;
}

/* Sums along the first events, to compare with. */
kernel void sums(global const float *image, global const float4 *events, uint nx, uint ny, uint nz,
                 global float *result)
{
    const uint event = get_global_id(0);
    result[event] = project(image, events[2 * event], events[2 * event + 1], nx, ny, nz);
}

/* Adds each event's share to the correction image: its lengths over the image's sum along it. */
kernel void correct(global const float *image, global const float4 *events, uint count, uint nx,
                    uint ny, uint nz, global float *correction)
{
    const uint event = get_global_id(0);
    if (event >= count)
        return;
    const float4 from = events[2 * event], to = events[2 * event + 1];
    const float sum = project(image, from, to, nx, ny, nz);
    if (sum <= 0.0f)
        return;
    struct walk walk = start(from, to, nx, ny, nz);
    float length;
    uint voxel;
    while (next(&walk, nx, ny, nz, &voxel, &length))
        if (length > 0.0f)
            add_to(correction + voxel, length / sum);
}

/* Adds another device's correction of some voxels to this one's. */
kernel void add(global float *correction, global const float *other)
{
    const uint voxel = get_global_id(0);
    correction[voxel] += other[voxel];
}

/* The multiplicative step for some voxels. */
kernel void update(global float *image, global const float *correction,
                   global const float *sensitivity, float subsets)
{
    const uint voxel = get_global_id(0);
    const float seen = sensitivity[voxel];
    image[voxel] = seen > 0.0f ? image[voxel] * correction[voxel] * subsets / seen : 0.0f;
}

/* The part of all directions in which a decay in a voxel is seen at both ends, for some voxels from
 * `first` on, and the image that the iterations begin with. */
kernel void prepare(global float *sensitivity, global float *image, uint first, uint nx, uint ny,
                    uint nz, float radius, float half_length, uint directions)
{
    const uint index = get_global_id(0), voxel = first + index;
    sensitivity[index] = 0.0f;
    image[index] = 0.0f;
    if (voxel >= nx * ny * nz)
        return;
    const float x = (float)(voxel % nx) + 0.5f - 0.5f * (float)nx;
    const float y = (float)(voxel / nx % ny) + 0.5f - 0.5f * (float)ny;
    const float z = (float)(voxel / (nx * ny)) + 0.5f - 0.5f * (float)nz;
    if (x * x + y * y > 0.25f * (float)nx * (float)nx)
        return;
    uint seen = 0;
    for (uint direction = 0; direction < directions; ++direction) {
        /* Points spread evenly over half a sphere, by the golden angle. */
        const float uz = ((float)direction + 0.5f) / (float)directions;
        const float across = sqrt(1.0f - uz * uz);
        const float angle = 2.3999632f * (float)direction;
        const float ux = across * cos(angle), uy = across * sin(angle);
        const float a = across * across, b = x * ux + y * uy;
        const float c = x * x + y * y - radius * radius;
        const float root = sqrt(b * b - a * c);
        const float up = z + uz * (-b + root) / a, down = z + uz * (-b - root) / a;
        seen += fabs(up) <= half_length && fabs(down) <= half_length;
    }
    sensitivity[index] = (float)seen / (float)directions;
    image[index] = 1.0f;
}
