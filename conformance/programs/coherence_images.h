/*
 * The part of coherence.c for images. Boxes of images are written, read, filled, copied and mapped. Some
 * images have thousands of rows, which a driver may not want to track one by one.
 */

enum { MOST_PICTURES = 2, ELEMENT = 4 };

/* An image and the place of its rows in its root's model, one after the other. */
struct picture {
    cl_mem image;
    cl_mem_object_type type;
    int root;
    size_t size[3];
};

/* Elements of a picture. */
struct part {
    size_t origin[3], region[3];
};

static struct picture pictures[MOST_PICTURES];
static int picture_count, has_images;

static const cl_image_format rgba8 = {CL_RGBA, CL_UNSIGNED_INT8};

static size_t bytes_in(const size_t *region)
{
    return region[0] * region[1] * region[2] * ELEMENT;
}

static struct box box_in(const struct picture *picture, const struct part *part)
{
    const size_t pitch = picture->size[0] * ELEMENT;
    const struct box box = {
        {part->origin[0] * ELEMENT, part->origin[1], part->origin[2]}, pitch, pitch * picture->size[1]};
    return box;
}

static struct use use_of(const struct picture *picture, int writes, const struct part *part)
{
    const struct box box = box_in(picture, part);
    const struct use use = {picture->root, writes, start_of(&box), part->region[0] * ELEMENT,
                            box.pitch, box.slice, part->region[1], part->region[2]};
    return use;
}

/* Copies between the model and memory with these pitches. */
static void copy_part(const struct picture *picture, const struct part *part, unsigned char *memory,
                      size_t pitch, size_t slice, int into_model)
{
    unsigned char *model = roots[picture->root].model;
    const size_t region[3] = {part->region[0] * ELEMENT, part->region[1], part->region[2]};
    const struct box inside = box_in(picture, part), outside = {{0, 0, 0}, pitch, slice};
    if (into_model)
        copy_box(model, &inside, memory, &outside, region);
    else
        copy_box(memory, &outside, model, &inside, region);
}

/* Chooses a large or small part of a picture, bounded by `most`. */
static struct part some_part(const struct picture *picture, const size_t *most)
{
    struct part part;
    const int large = chance(70);
    for (int i = 0; i < 3; ++i) {
        const size_t end = most[i] < picture->size[i] ? most[i] : picture->size[i];
        part.region[i] = large && i > 0 ? between(end - end / 8, end) : between(1, end);
        part.origin[i] = below(picture->size[i] - part.region[i] + 1);
    }
    tell("  picture %d from %zu %zu %zu, %zu %zu %zu", (int)(picture - pictures), part.origin[0],
         part.origin[1], part.origin[2], part.region[0], part.region[1], part.region[2]);
    return part;
}

static void open_picture(void)
{
    static const cl_mem_object_type types[] = {CL_MEM_OBJECT_IMAGE1D, CL_MEM_OBJECT_IMAGE1D_ARRAY,
                                               CL_MEM_OBJECT_IMAGE2D, CL_MEM_OBJECT_IMAGE2D_ARRAY,
                                               CL_MEM_OBJECT_IMAGE3D};
    cl_int status;
    struct root *root = &roots[root_count];
    struct picture *picture = &pictures[picture_count];
    const int tall = chance(60);
    memset(root, 0, sizeof *root);
    picture->type = types[below(5)];
    picture->size[0] = between(1, 12);
    picture->size[1] = picture->size[2] = 1;
    if (picture->type == CL_MEM_OBJECT_IMAGE1D_ARRAY)
        picture->size[1] = tall ? between(1000, 2000) : between(1, 30);
    else if (picture->type == CL_MEM_OBJECT_IMAGE2D)
        picture->size[1] = tall ? between(4200, 9000) : between(1, 60);
    else if (picture->type != CL_MEM_OBJECT_IMAGE1D) {
        picture->size[1] = tall ? between(66, 100) : between(1, 12);
        picture->size[2] = tall ? between(66, 100) : between(1, 12);
    }
    picture->root = root_count++;
    root->size = bytes_in(picture->size);
    root->model = bytes_of(root->size);
    root->view = -1;
    random_bytes(root->model, root->size);
    cl_image_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.image_type = picture->type;
    desc.image_width = picture->size[0];
    if (picture->type == CL_MEM_OBJECT_IMAGE1D_ARRAY)
        desc.image_array_size = picture->size[1];
    else
        desc.image_height = picture->size[1];
    if (picture->type == CL_MEM_OBJECT_IMAGE3D)
        desc.image_depth = picture->size[2];
    if (picture->type == CL_MEM_OBJECT_IMAGE2D_ARRAY)
        desc.image_array_size = picture->size[2];
    picture->image = clCreateImage(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, &rgba8, &desc,
                                   root->model, &status);
    OK(status);
    tell("picture %d: root %d, type %x, %zu x %zu x %zu", picture_count, picture->root,
         (unsigned)picture->type, picture->size[0], picture->size[1], picture->size[2]);
    root->picture = ++picture_count;
}

static void move_part(int writes, const struct picture *picture, const struct part *part)
{
    struct command *command = fresh(writes ? "write image" : "read image");
    command->uses[command->use_count++] = use_of(picture, writes, part);
    if (is_mapped(command))
        return;
    const size_t pitch = part->region[0] * ELEMENT, slice = pitch * part->region[1];
    command->length = bytes_in(part->region);
    command->got = bytes_of(command->length);
    random_bytes(command->got, command->length);
    const struct list list = put_in_order(command);
    const cl_bool blocks = may_block(command);
    const cl_command_queue queue = queues[command->queue];
    if (writes) {
        copy_part(picture, part, command->got, pitch, slice, 1);
        enqueued(command, clEnqueueWriteImage(queue, picture->image, blocks, part->origin,
                                              part->region, 0, 0, command->got, EVENTS));
    } else {
        command->expected = bytes_of(command->length);
        copy_part(picture, part, command->expected, pitch, slice, 0);
        enqueued(command, clEnqueueReadImage(queue, picture->image, blocks, part->origin,
                                             part->region, 0, 0, command->got, EVENTS));
    }
    if (blocks)
        done |= command->before | BIT(command - commands);
}

static void fill_part(const struct picture *picture, const struct part *part)
{
    cl_uint colour[4];
    struct command *command = fresh("fill image");
    command->uses[command->use_count++] = use_of(picture, 1, part);
    if (is_mapped(command))
        return;
    const size_t length = bytes_in(part->region), pitch = part->region[0] * ELEMENT;
    unsigned char *filled = bytes_of(length);
    for (int i = 0; i < 4; ++i)
        colour[i] = (cl_uint)below(256);
    for (size_t i = 0; i < length; ++i)
        filled[i] = (unsigned char)colour[i % 4];
    const struct list list = put_in_order(command);
    copy_part(picture, part, filled, pitch, pitch * part->region[1], 1);
    free(filled);
    enqueued(command, clEnqueueFillImage(queues[command->queue], picture->image, colour,
                                         part->origin, part->region, EVENTS));
}

static void copy_picture(const struct picture *to)
{
    const struct picture *from = &pictures[below((u64)picture_count)];
    const struct part here = some_part(from, to->size);
    struct part there = here;
    struct command *command = fresh("copy image");
    for (int i = 0; i < 3; ++i)
        there.origin[i] = below(to->size[i] - there.region[i] + 1);
    command->uses[command->use_count++] = use_of(from, 0, &here);
    command->uses[command->use_count++] = use_of(to, 1, &there);
    /* Within one image, drivers' rules are stricter. Between types, they differ. */
    if (from == to || from->type != to->type || is_mapped(command))
        return;
    const size_t length = bytes_in(here.region), pitch = here.region[0] * ELEMENT;
    unsigned char *copied = bytes_of(length);
    const struct list list = put_in_order(command);
    copy_part(from, &here, copied, pitch, pitch * here.region[1], 0);
    copy_part(to, &there, copied, pitch, pitch * here.region[1], 1);
    free(copied);
    enqueued(command, clEnqueueCopyImage(queues[command->queue], from->image, to->image, here.origin,
                                         there.origin, here.region, EVENTS));
}

/* ---- maps ---- */

static void map_part(const struct picture *picture, const struct part *part)
{
    static const cl_map_flags all[] = {CL_MAP_READ, CL_MAP_WRITE, CL_MAP_READ | CL_MAP_WRITE,
                                       CL_MAP_WRITE_INVALIDATE_REGION};
    cl_int status;
    struct map map = {.command = command_count, .flags = all[below(4)], .picture = picture};
    struct command *command = fresh("map image");
    tell("  flags %u", (unsigned)map.flags);
    command->uses[command->use_count++] = use_of(picture, map.flags != CL_MAP_READ, part);
    if (map_count == MOST_MAPS || is_mapped(command))
        return;
    const struct list list = put_in_order(command);
    const cl_bool blocks = may_block(command);
    memcpy(map.origin, part->origin, sizeof map.origin);
    memcpy(map.region, part->region, sizeof map.region);
    map.at = clEnqueueMapImage(queues[command->queue], picture->image, blocks, map.flags, part->origin,
                               part->region, &map.pitch, &map.slice, EVENTS, &status);
    enqueued(command, status);
    if (picture->type == CL_MEM_OBJECT_IMAGE1D_ARRAY)
        map.pitch = map.slice;
    wait_for(BIT(map.command));
    if (map.flags != CL_MAP_WRITE_INVALIDATE_REGION) {
        const size_t pitch = part->region[0] * ELEMENT;
        command->length = bytes_in(part->region);
        command->got = bytes_of(command->length);
        command->expected = bytes_of(command->length);
        const struct box mapped = {{0, 0, 0}, map.pitch, map.slice};
        const struct box tight = {{0, 0, 0}, pitch, pitch * part->region[1]};
        const size_t region[3] = {pitch, part->region[1], part->region[2]};
        copy_box(command->got, &tight, map.at, &mapped, region);
        copy_part(picture, part, command->expected, tight.pitch, tight.slice, 0);
    }
    maps[map_count++] = map;
}

/* The program writes some rows of a map, or all rows of an invalidating map. The picture gets
   these rows at the unmap. */
static void write_map(const struct map *map)
{
    const int all = map->flags == CL_MAP_WRITE_INVALIDATE_REGION;
    const struct part part = {{map->origin[0], map->origin[1], map->origin[2]},
                              {map->region[0], map->region[1], map->region[2]}};
    for (size_t z = 0; z < map->region[2]; ++z)
        for (size_t y = 0; y < map->region[1]; ++y)
            if (all || chance(50))
                random_bytes(map->at + z * map->slice + y * map->pitch, map->region[0] * ELEMENT);
    copy_part(map->picture, &part, map->at, map->pitch, map->slice, 1);
}

static void step_of_picture(void)
{
    const struct picture *picture = &pictures[below((u64)picture_count)];
    const u64 what = below(100);
    if (what < 20) {
        copy_picture(picture);
        return;
    }
    const struct part part = some_part(picture, picture->size);
    if (what < 55)
        map_part(picture, &part);
    else if (what < 75)
        move_part(1, picture, &part);
    else if (what < 90)
        move_part(0, picture, &part);
    else
        fill_part(picture, &part);
}

static void read_picture(const struct picture *picture)
{
    const struct part all = {{0, 0, 0}, {picture->size[0], picture->size[1], picture->size[2]}};
    move_part(0, picture, &all);
}
