//! Creation of memory objects and samplers; part of [`super::apply`], with its invariants.
//!
//! The client requests the address of shared virtual memory, so each such request is answered once. Memory
//! that could not be allocated keeps its id as a broken object, like any other.
#![forbid(unsafe_code)]

use std::sync::Arc;

use causeway_proto::command::{
    Answer, CreateBuffer, CreateImage, CreatePipe, CreateSampler, CreateSubBuffer, CreateSvm,
    ObjectKind, answer,
};
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

/// Applies `CreateBuffer`.
pub(super) fn create_buffer(shared: &Arc<Shared>, create: &CreateBuffer) -> Result<(), Violation> {
    if create.contents.len() > INLINE_CONTENTS {
        return Err(Violation::Malformed(
            "a buffer's initial contents are too large for one command",
        ));
    }
    let id = MemoryId(create.buffer);
    let context = shared.context(create.context)?;
    let room = shared.room()?;
    let memory = Memory::whole(context, create.size, |context| {
        room?;
        let made = Buffer::new(
            context.native()?,
            create.flags,
            create.size,
            &create.contents,
        )?;
        match create.contents.is_empty() {
            true => shared.cleared(context, made),
            false => Ok(made),
        }
    });
    shared.add_memory(id, memory)
}

/// Applies `CreateSubBuffer`.
pub(super) fn create_sub_buffer(
    shared: &Arc<Shared>,
    create: &CreateSubBuffer,
) -> Result<(), Violation> {
    let id = MemoryId(create.buffer);
    let parent = find(&shared.core.lock().objects.memory, MemoryId(create.parent))?;
    let native = (shared.room()?.and(parent.native()))
        .and_then(|parent| parent.sub_buffer(create.flags, create.origin, create.size));
    let memory = Memory::part(
        Arc::clone(&parent.context),
        native,
        Some(MemoryId(create.parent)),
    );
    shared.add_memory(id, memory)
}

/// Applies `CreateImage`.
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
        _ if room.is_err() => {
            Memory::part(context, room.and(Err(Status::OUT_OF_HOST_MEMORY)), None)
        }
        Some(parent) => {
            let native = parent.native().and_then(|parent| {
                Buffer::image(context.native()?, create.flags, &spec, Some(parent), &[])
            });
            Memory::part(context, native, Some(MemoryId(create.parent)))
        }
        None => whole_image(shared, context, create, &spec),
    };
    shared.add_memory(id, memory)
}

fn whole_image(
    shared: &Shared,
    context: Arc<Context>,
    create: &CreateImage,
    spec: &ImageSpec,
) -> Memory {
    let raster = match spec.raster() {
        Ok(raster) => raster,
        Err(status) => return Memory::part(context, Err(status), None),
    };
    Memory::whole(context, raster.size(), |context| {
        let made = Buffer::image(
            context.native()?,
            create.flags,
            spec,
            None,
            &create.contents,
        )?;
        match create.contents.is_empty() {
            true => shared.cleared(context, made),
            false => Ok(made),
        }
    })
}

/// Applies `CreatePipe`.
pub(super) fn create_pipe(shared: &Arc<Shared>, create: &CreatePipe) -> Result<(), Violation> {
    let id = MemoryId(create.pipe);
    let context = shared.context(create.context)?;
    let size = u64::from(create.packet_size) * u64::from(create.max_packets);
    let room = shared.room()?;
    // A pipe begins empty, so kernels read no bytes of others from it.
    let memory = Memory::whole(context, size, |context| {
        room?;
        let native = context.native()?;
        Buffer::pipe(native, create.flags, create.packet_size, create.max_packets)
    });
    shared.add_memory(id, memory)
}

/// Applies `CreateSvm` and answers with the memory's address.
pub(super) fn create_svm(shared: &Arc<Shared>, create: &CreateSvm) -> Result<(), Violation> {
    let id = MemoryId(create.buffer);
    let context = shared.context(create.context)?;
    let room = shared.room()?;
    let memory = Memory::whole(context, create.size, |context| {
        room?;
        let native = context.native()?;
        context.cleared(Buffer::svm(
            native,
            create.flags,
            create.size,
            create.alignment,
        )?)
    });
    let address = memory.native().ok().and_then(Buffer::svm_address);
    let status = memory.native().err().unwrap_or(Status::SUCCESS);
    add(&mut shared.core.lock().objects.memory, id, memory)?;
    shared.outbox.answer(Answer {
        request: create.request,
        status: status.0,
        message: String::new(),
        body: address.map(|address| answer::Body::Value(address.to_le_bytes().to_vec().into())),
    });
    Ok(())
}

/// Applies `CreateSampler`.
pub(super) fn create_sampler(
    shared: &Arc<Shared>,
    create: &CreateSampler,
) -> Result<(), Violation> {
    let id = SamplerId(create.sampler);
    let context = shared.context(create.context)?;
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

impl Shared {
    // As `Context::cleared`, unless the memory gets the contents that the worker before has written.
    fn cleared(&self, context: &Context, memory: Buffer) -> Result<Buffer, Status> {
        match self.parking.fills() {
            true => Ok(memory),
            false => context.cleared(memory),
        }
    }

    /// Adds a memory object, working or broken. Tells the client if it is broken.
    fn add_memory(&self, id: MemoryId, memory: Memory) -> Result<(), Violation> {
        let broken = memory.native().err();
        self.tell_broken(ObjectKind::Memory, id.0, broken.as_ref(), memory.context.id);
        add(&mut self.core.lock().objects.memory, id, memory)
    }
}
