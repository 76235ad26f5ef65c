//! The pool of the heap's own data: descriptors and tables, never mixed with blocks.
//!
//! Descriptors are type-stable: a span's place becomes a span's place again. Everything lives until the heap is dropped, when
//! [`Meta::unmap_all`] gives the mappings back; each mapping is in a list whose nodes lie in the pool itself.
//!
//! Invariants: `T1` every mapping of the pool is in the list `maps`; `T2` memory from `bump` to `end` is zeroed and nobody's.

use crate::chunk::{Chunk, ChunkRef};
use crate::ground::Counted;
use crate::list::List;
use crate::platform::{Contents, Mapped, PageSource};
use crate::span::{InList, Kind, Span, SpanRef};
use crate::units::{PAGE_SIZE, PageRun, Pages, align_up};
use core::ptr::NonNull;

/// The pool.
pub(crate) struct Meta {
    block: Pages,
    bump: NonNull<u8>,
    left: usize,
    maps: Option<NonNull<MapNode>>,
    spans: List<SpanRef>,
    chunks: List<ChunkRef>,
    mapped: Pages,
}

// SAFETY: the pool owns the memory its pointers lead to.
unsafe impl Send for Meta {}

/// A mapping of the pool in the list of all.
pub(crate) struct MapNode {
    pub(crate) run: PageRun,
    pub(crate) next: Option<NonNull<Self>>,
}

impl Meta {
    /// A pool that grows by `block` pages at a time.
    pub(crate) const fn new(block: Pages) -> Self {
        let (spans, chunks) = (List::EMPTY, List::EMPTY);
        Self { block, bump: NonNull::dangling(), left: 0, maps: None, spans, chunks, mapped: Pages(0) }
    }

    /// Bytes mapped for the pool.
    pub(crate) fn bytes(&self) -> usize {
        self.mapped.bytes()
    }

    /// A descriptor for a run.
    pub(crate) fn span(&mut self, source: &Counted<impl PageSource>) -> Option<SpanRef> {
        if let Some(span) = self.spans.first() {
            self.spans.remove(&InList, span);
            return Some(span);
        }
        let span = self.carve(source, size_of::<Span>(), align_of::<Span>())?.cast::<Span>();
        // SAFETY: fresh memory of the pool, large enough, aligned, nobody's (T2), and it stays as long as the heap.
        unsafe {
            span.write(Span::unused());
            Some(SpanRef::new(span))
        }
    }

    /// Takes a span's descriptor back; the page map names it no more.
    pub(crate) fn free_span(&mut self, span: SpanRef) {
        span.kind.set(Kind::Unused);
        self.spans.insert(&InList, span);
    }

    /// A descriptor for a chunk.
    pub(crate) fn chunk(&mut self, source: &Counted<impl PageSource>) -> Option<ChunkRef> {
        if let Some(chunk) = self.chunks.first() {
            self.chunks.remove(&crate::chunk::InAll, chunk);
            return Some(chunk);
        }
        let chunk = self.carve(source, size_of::<Chunk>(), align_of::<Chunk>())?.cast::<Chunk>();
        // SAFETY: as in `span`.
        unsafe {
            chunk.write(Chunk::unused());
            Some(ChunkRef::new(chunk))
        }
    }

    /// Takes a chunk's descriptor back; it is in no list.
    pub(crate) fn free_chunk(&mut self, chunk: ChunkRef) {
        self.chunks.insert(&crate::chunk::InAll, chunk);
    }

    /// A zeroed table, aligned to a page, for good.
    pub(crate) fn table(&mut self, source: &Counted<impl PageSource>, bytes: usize) -> Option<NonNull<u8>> {
        let pages = Pages::holding(bytes)?;
        if pages.bytes() <= self.left || pages.0 * 2 <= self.block.0 {
            return self.carve(source, pages.bytes(), PAGE_SIZE);
        }
        let mapped = source.map_sparse(pages)?;
        let run = PageRun { start: mapped.start, pages };
        let Some(node) = self.carve(source, size_of::<MapNode>(), align_of::<MapNode>()) else {
            // SAFETY: just mapped, and nobody has it. A refusal leaves the run to the source.
            let _ = unsafe { source.unmap(run) };
            return None;
        };
        self.file(run, mapped.contents, node);
        Some(run.start)
    }

    fn carve(&mut self, source: &Counted<impl PageSource>, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        let padding = |bump: NonNull<u8>| align_up(bump.addr().get(), align).map(|start| start - bump.addr().get());
        let mut skip = padding(self.bump)?;
        if skip + bytes > self.left {
            // What is left of the last block is given up; a block starts with its own node in the list.
            let (mapped, pages) = self.map_block(source, size_of::<MapNode>() + bytes)?;
            self.file(PageRun { start: mapped.start, pages }, mapped.contents, mapped.start);
            (self.bump, self.left) = (mapped.start, pages.bytes());
            self.skip(size_of::<MapNode>());
            skip = padding(self.bump)?;
        }
        self.skip(skip);
        let carved = self.bump;
        self.skip(bytes);
        Some(carved)
    }

    /// A block of the usual length, or where the source has none (an address space with a limit), one as short as will do.
    fn map_block(&self, source: &Counted<impl PageSource>, bytes: usize) -> Option<(Mapped, Pages)> {
        if let Some(mapped) = source.map_sparse(self.block) {
            return Some((mapped, self.block));
        }
        let short = Pages(Self::SHORT.0.max(Pages::holding(bytes + PAGE_SIZE)?.0));
        Some((source.map(short, PAGE_SIZE)?, short))
    }

    const SHORT: Pages = Pages(64);

    fn skip(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.left);
        // SAFETY: inside the block, or just behind its end.
        self.bump = unsafe { self.bump.byte_add(bytes) };
        self.left -= bytes;
    }

    /// Clears a fresh mapping and files it under `node`, which is a place for one: carved for it, or its own first bytes.
    fn file(&mut self, run: PageRun, contents: Contents, node: NonNull<u8>) {
        if contents == Contents::Unknown {
            // SAFETY: the run was just mapped, writable and ours.
            unsafe { run.start.write_bytes(0, run.pages.bytes()) };
        }
        let node = node.cast::<MapNode>();
        // SAFETY: ours, long enough and aligned.
        unsafe { node.write(MapNode { run, next: self.maps }) };
        self.maps = Some(node);
        self.mapped.0 += run.pages.0;
    }

    /// Takes over a mapping that begins with its own node.
    ///
    /// # Safety
    /// The node is initialised, in no list, and the caller's.
    pub(crate) unsafe fn adopt(&mut self, mut node: NonNull<MapNode>) {
        // SAFETY: the caller's promise.
        let node_ref = unsafe { node.as_mut() };
        node_ref.next = self.maps;
        self.mapped.0 += node_ref.run.pages.0;
        self.maps = Some(node);
    }

    /// Gives every mapping of the pool back.
    ///
    /// # Safety
    /// No descriptor or table of the pool is used any more.
    pub(crate) unsafe fn unmap_all(&mut self, source: &Counted<impl PageSource>) {
        // A table's node lies in a block that was filed before the table was, so newest first never unmaps a node too soon.
        while let Some(node) = self.maps.take() {
            // SAFETY: nodes stay readable until their own block is unmapped, which is after everything newer (T1).
            let MapNode { run, next } = unsafe { node.read() };
            self.maps = next;
            // SAFETY: mapped by this source, and nobody uses it, by the caller's promise. A refusal leaves it to the source.
            let _ = unsafe { source.unmap(run) };
        }
    }
}
