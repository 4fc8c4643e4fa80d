/* SPDX-License-Identifier: MIT */
/* Requests of an operation: where its bytes lie, short and repeated transfers. */
#include "stores/local/local.h"

/* In a row; a device that has nothing else to say is broken. */
#define RETRIES_MAX 1000u

struct loc_io *loc_io_idle(struct loc_op *lop)
{
	for (unsigned int i = 0; i < LOC_IO_SLOTS; i++) {
		if (!lop->io[i].lop)
			return &lop->io[i];
	}
	return NULL;
}

/*
 * The rest of a request over several segments: as one vector when none of it has come, and
 * otherwise segment by segment, since the vector is the operation's and stays as it is.
 */
static void prep_segs(struct io_uring_sqe *sqe, struct loc_io *io, int fd, bool write)
{
	const struct iovec *v = io->lop->op->segs + io->seg;
	uint32_t skip = io->got;

	if (!skip) {
		if (write)
			io_uring_prep_writev(sqe, fd, v, io->nsegs, io->off);
		else
			io_uring_prep_readv(sqe, fd, v, io->nsegs, io->off);
		return;
	}
	while (skip >= v->iov_len)
		skip -= v++->iov_len;
	if (write)
		io_uring_prep_write(sqe, fd, (char *)v->iov_base + skip, v->iov_len - skip,
				    io->off + io->got);
	else
		io_uring_prep_read(sqe, fd, (char *)v->iov_base + skip, v->iov_len - skip,
				   io->off + io->got);
}

void loc_io_read(struct loc_io *io)
{
	struct loc_shard *sh = io->lop->sh;
	int fd = sh->ls->file[io->file].fd;
	struct io_uring_sqe *sqe = kvb_io_get(sh->r, &io->io);

	if (io->buf)
		io_uring_prep_read(sqe, fd, (char *)io->buf + io->got, io->len - io->got,
				   io->off + io->got);
	else
		prep_segs(sqe, io, fd, false);
}

void loc_io_write(struct loc_io *io)
{
	struct loc_shard *sh = io->lop->sh;
	int fd = sh->ls->file[io->file].fd;
	struct io_uring_sqe *sqe = kvb_io_get(sh->r, &io->io);

	if (io->buf)
		io_uring_prep_write(sqe, fd, (char *)io->buf + io->got, io->len - io->got,
				    io->off + io->got);
	else
		prep_segs(sqe, io, fd, true);
	if (io->dsync)
		sqe->rw_flags = RWF_DSYNC;
}

bool loc_io_over(struct loc_io *io, int *res, bool write)
{
	if (*res == -EAGAIN || *res == -EINTR) {
		if (++io->retries > RETRIES_MAX) {
			*res = -EIO;
			return true;
		}
	} else if (*res < 0) {
		return true;
	} else if (!*res) {
		*res = -EIO;	/* past the end: the file has shrunk */
		return true;
	} else {
		uint32_t mask = io->lop->sh->ls->file[io->file].lbs - 1;

		io->got += *res;
		if (io->got >= io->len) {
			*res = 0;
			return true;
		}
		/* Go on at a block boundary, or direct I/O refuses. */
		if (io->got & mask) {
			if (++io->retries > RETRIES_MAX) {
				*res = -EIO;
				return true;
			}
			io->got &= ~mask;
		} else {
			io->retries = 0;
		}
	}
	if (write)
		loc_io_write(io);
	else
		loc_io_read(io);
	return false;
}

uint64_t loc_locate(struct loc_op *lop, uint32_t voff, uint32_t *file, uint64_t *len)
{
	struct loc_store *ls = lop->sh->ls;
	const struct loc_ext *e = lop->rdv ? lop->rdv->e : &lop->rd1;
	uint64_t bytes;

	if (voff < lop->ext_off) {
		lop->ext_i = 0;
		lop->ext_off = 0;
	}
	for (;;) {
		bytes = (uint64_t)e[lop->ext_i].units << ls->unit_shift;
		if (voff - lop->ext_off < bytes)
			break;
		lop->ext_off += bytes;
		lop->ext_i++;
	}
	e += lop->ext_i;
	*file = loc_pos_file(e->pos);
	*len = bytes - (voff - lop->ext_off);
	return loc_data_off(ls, e->pos) + (voff - lop->ext_off);
}

uint16_t loc_status(int err, bool write)
{
	switch (err) {
	case 0:
		return GKV_SC_SUCCESS;
	case -EFAULT:	/* client memory has gone */
		return GKV_SC_DATA_TRANSFER;
	case -ENOMEM:
		return GKV_SC_INTERNAL;
	default:
		return write ? GKV_SC_WRITE_FAULT : GKV_SC_UNRECOVERED;
	}
}
