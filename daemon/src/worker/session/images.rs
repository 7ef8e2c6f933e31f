//! Creation of images and samplers; part of [`super::apply`], with its invariants.
#![forbid(unsafe_code)]

use std::sync::Arc;

use causeway_proto::command::{CreateImage, CreateSampler, ObjectKind};
use causeway_proto::id::{ContextId, MemoryId, SamplerId};
use causeway_proto::image_format::ImageFormat;
use causeway_proto::limits::INLINE_CONTENTS;
use causeway_proto::status::Status;

use super::shared::Shared;
use super::tables::{add, find};
use super::violation::Violation;
use crate::runtime::buffer::Buffer;
use crate::runtime::image::ImageSpec;
use crate::runtime::sampler::Sampler as NativeSampler;
use crate::worker::objects::{Context, Memory, Sampler};

/// Applies `CreateImage`.
///
/// # Errors
/// [`Violation`], which ends the session.
pub(super) fn create_image(shared: &Arc<Shared>, create: &CreateImage) -> Result<(), Violation> {
    if create.contents.len() > INLINE_CONTENTS {
        return Err(Violation::Malformed(
            "an image's initial contents are too large for one command",
        ));
    }
    let id = MemoryId(create.image);
    let (context, parent) = {
        let core = shared.core.lock();
        let context = find(&core.objects.contexts, ContextId(create.context))?;
        let parent = match create.parent {
            0 => None,
            parent => Some(find(&core.objects.memory, MemoryId(parent))?),
        };
        (context, parent)
    };
    if let Some(parent) = &parent
        && !Arc::ptr_eq(&parent.context, &context)
    {
        return Err(Violation::Malformed(
            "an image uses a memory object of another context",
        ));
    }
    let spec = ImageSpec {
        image_type: create.image_type,
        format: ImageFormat {
            order: create.channel_order,
            channel_type: create.channel_type,
        },
        extent: [create.width, create.rows, create.slices],
        row_pitch: create.row_pitch,
    };
    let room = shared.room()?;
    let memory = match parent {
        _ if room.is_err() => Memory::part(context, room.and(Err(Status::OUT_OF_HOST_MEMORY))),
        Some(parent) => {
            let native = parent.native().and_then(|parent| {
                Buffer::image(context.native()?, create.flags, &spec, Some(parent), &[])
            });
            Memory::part(context, native)
        }
        None => whole_image(context, create, &spec),
    };
    let broken = memory.native().err();
    shared.tell_broken(ObjectKind::Memory, id.0, broken.as_ref(), memory.context.id);
    add(&mut shared.core.lock().objects.memory, id, memory)
}

fn whole_image(context: Arc<Context>, create: &CreateImage, spec: &ImageSpec) -> Memory {
    let raster = match spec.raster() {
        Ok(raster) => raster,
        Err(status) => return Memory::part(context, Err(status)),
    };
    Memory::whole(context, raster.size(), |native| {
        Buffer::image(native, create.flags, spec, None, &create.contents)
    })
}

/// Applies `CreateSampler`.
///
/// # Errors
/// [`Violation`], which ends the session.
pub(super) fn create_sampler(
    shared: &Arc<Shared>,
    create: &CreateSampler,
) -> Result<(), Violation> {
    let id = SamplerId(create.sampler);
    let context = find(
        &shared.core.lock().objects.contexts,
        ContextId(create.context),
    )?;
    let native = (shared.room()?.and(context.native())).and_then(|native| {
        NativeSampler::new(
            native,
            create.normalized_coords,
            create.addressing_mode,
            create.filter_mode,
        )
    });
    let broken: Option<&Status> = native.as_ref().err();
    shared.tell_broken(ObjectKind::Sampler, id.0, broken, context.id);
    let sampler = Sampler { native };
    add(&mut shared.core.lock().objects.samplers, id, sampler)
}
