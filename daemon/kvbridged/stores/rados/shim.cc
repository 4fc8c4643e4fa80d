/* SPDX-License-Identifier: MIT */
/*
 * See shim.h. Everything that may throw is inside a try block, but for the submission
 * itself: an operation whose submission was torn by an exception may or may not be on its
 * way, and nobody could say whether its callback comes. Then the process ends, and what
 * restarts it finds the truth.
 */
#include "stores/rados/shim.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include <rados/librados.hpp>

using librados::AioCompletion;
using librados::IoCtx;

namespace
{

/* What an exception means; only inside a handler. */
int errno_of_exception() noexcept
{
	try {
		throw;
	} catch (const std::bad_alloc &) {
		return -ENOMEM;
	} catch (const std::system_error &e) {
		return e.code().value() > 0 ? -e.code().value() : -EIO;
	} catch (...) {
		return -EIO;
	}
}

/* Shares the C handle's context, and its namespace with it. */
struct io_of : IoCtx {
	explicit io_of(rados_ioctx_t io)
	{
		IoCtx::from_rados_ioctx_t(io, *this);
	}
};

/* One operation: its callback, and the completion of librados that brings it. */
struct op {
	AioCompletion *c = nullptr;
	void (*cb)(void *arg);
	void *arg;
	/* Orders all before the submission before the callback, as librados does: for TSan. */
	std::atomic<bool> handed{ false };

	op(void (*cb)(void *), void *arg) : cb(cb), arg(arg)
	{
		c = librados::Rados::aio_create_completion(this, called);
		if (!c)
			throw std::bad_alloc();
	}
	op(const op &) = delete;
	op &operator=(const op &) = delete;
	~op()
	{
		c->release();
	}

	/* On librados's thread. Its owner may free it from within cb, or at once after. */
	static void called(librados::completion_t, void *arg)
	{
		struct op *o = static_cast<struct op *>(arg);

		o->handed.load(std::memory_order_acquire);
		o->cb(o->arg);
	}

	void cancel(rados_ioctx_t io) noexcept
	{
		/* Its return value says nothing; it ends with the callback in any case. */
		io_of(io).aio_cancel(c);
	}

	int result() const noexcept
	{
		int rc = c->get_return_value();

		return rc < 0 ? rc : 0;
	}
};

int submit(IoCtx &io, const std::string &oid, struct op *op,
	   librados::ObjectReadOperation &o) noexcept
{
	op->handed.store(true, std::memory_order_release);
	return io.aio_operate(oid, op->c, &o, 0, nullptr);
}

int submit(IoCtx &io, const std::string &oid, struct op *op,
	   librados::ObjectWriteOperation &o) noexcept
{
	op->handed.store(true, std::memory_order_release);
	/* Else a full pool would make it wait, removes too. */
	return io.aio_operate(oid, op->c, &o, librados::OPERATION_FULL_TRY);
}

} // namespace

/* ---- Read ---- */

/* Where librados puts results; it leaves them alone when the operation fails early. */
struct rsh_read : op {
	uint64_t size = 0;
	struct timespec mtime = {};
	int stat_rc = 0, attr_rc = -ENODATA, read_rc = 0;
	ceph::bufferlist attr, data;

	using op::op;
};

struct rsh_read *rsh_read_start(rados_ioctx_t ioctx, const struct rsh_read_args *a,
				void (*cb)(void *arg), void *arg, int *rc)
{
	struct rsh_read *r = nullptr;

	try {
		io_of io(ioctx);
		librados::ObjectReadOperation o;
		std::string oid(a->oid);

		r = new rsh_read(cb, arg);
		if (a->stat || !a->len)
			o.stat2(&r->size, &r->mtime, &r->stat_rc);
		if (a->attr) {
			o.getxattr(a->attr, &r->attr, &r->attr_rc);
			o.set_op_flags2(librados::OP_FAILOK);
		}
		/* To an OSD a length of 0 is all there is. */
		if (a->len)
			o.read(a->off, a->len, &r->data, &r->read_rc);
		*rc = submit(io, oid, r, o);
		/* Once submitted it may be gone: the callback may have come. */
		if (!*rc)
			return r;
	} catch (...) {
		*rc = errno_of_exception();
	}
	delete r;
	return nullptr;
}

void rsh_read_result(struct rsh_read *r, struct rsh_read_result *res)
{
	res->rc = r->result();
	/* The parts' own results mean something only now. */
	if (!res->rc && r->stat_rc < 0)
		res->rc = r->stat_rc;
	if (!res->rc && r->read_rc < 0)
		res->rc = r->read_rc;
	if (res->rc)
		return;
	res->size = r->size;
	res->mtime_sec = r->mtime.tv_sec;
	res->mtime_nsec = static_cast<uint32_t>(r->mtime.tv_nsec);
	res->version = r->c->get_version64();
	res->len = r->data.length();
	res->attr_len = 0;
	if (r->attr_rc >= 0) {
		uint32_t n = 0;

		res->attr_len = r->attr.length();
		for (const auto &p : r->attr.buffers()) {
			uint32_t part = std::min<uint32_t>(p.length(), RSH_ATTR_MAX - n);

			memcpy(res->attr + n, p.c_str(), part);
			n += part;
		}
	}
}

const void *rsh_read_piece(struct rsh_read *r, uint32_t off, uint32_t *len)
{
	/* One or two, as a rule. */
	for (const auto &p : r->data.buffers()) {
		if (off < p.length()) {
			*len = p.length() - off;
			return p.c_str() + off;
		}
		off -= p.length();
	}
	*len = 0;
	return nullptr;
}

void rsh_read_cancel(rados_ioctx_t io, struct rsh_read *r)
{
	r->cancel(io);
}

void rsh_read_free(struct rsh_read *r)
{
	delete r;
}

/* ---- Write ---- */

struct rsh_write : op {
	/* Its reference count is everyone's who may still look at the caller's memory. */
	ceph::bufferptr data;

	using op::op;
};

struct rsh_write *rsh_write_start(rados_ioctx_t ioctx, const struct rsh_write_args *a,
				  void (*cb)(void *arg), void *arg, int *rc)
{
	struct rsh_write *w = nullptr;

	try {
		io_of io(ioctx);
		librados::ObjectWriteOperation o;
		std::string oid(a->oid);

		w = new rsh_write(cb, arg);
		if (a->remove) {
			o.remove();
		} else {
			struct timespec mtime = {};
			ceph::bufferlist bl;

			mtime.tv_sec = a->mtime_sec;
			mtime.tv_nsec = a->mtime_nsec;
			o.mtime2(&mtime);
			if (a->exclusive)
				o.create(true);
			else if (a->must_exist)
				o.assert_exists();
			if (a->len) {
				w->data = ceph::bufferptr(ceph::buffer::create_static(
					a->len, static_cast<char *>(a->data)));
				bl.append(w->data);
			}
			o.write_full(bl);
			if (a->attr) {
				ceph::bufferlist v;

				v.append(static_cast<const char *>(a->attr_data), a->attr_len);
				o.setxattr(a->attr, v);
			}
		}
		*rc = submit(io, oid, w, o);
		if (!*rc)
			return w;
	} catch (...) {
		*rc = errno_of_exception();
	}
	delete w;
	return nullptr;
}

int rsh_write_result(struct rsh_write *w)
{
	return w->result();
}

bool rsh_write_idle(struct rsh_write *w)
{
	return !w->data.have_raw() || w->data.raw_nref() == 1;
}

void rsh_write_cancel(rados_ioctx_t io, struct rsh_write *w)
{
	w->cancel(io);
}

void rsh_write_free(struct rsh_write *w)
{
	delete w;
}

/* ---- List ---- */

/* Assigning to an ObjectCursor leaks what it held: each place is an object of its own. */
struct rsh_cursor {
	std::unique_ptr<librados::ObjectCursor> at;
};

namespace
{

/* The order of objects is that of their hash, lowest bit first. */
uint32_t reverse_bits(uint32_t v)
{
	uint32_t r = 0;

	for (int i = 0; i < 32; i++, v >>= 1)
		r = r << 1 | (v & 1);
	return r;
}

/* As a cursor's text has it. */
void append_escaped(std::string &out, const std::string &s)
{
	char buf[4];

	for (unsigned char c : s) {
		if (c == '%' || c == ':' || c == '/' || c < 32 || c >= 127) {
			snprintf(buf, sizeof(buf), "%%%02x", c);
			out += buf;
		} else {
			out += static_cast<char>(c);
		}
	}
}

} // namespace

struct rsh_cursor *rsh_cursor_at(rados_ioctx_t ioctx, const char *from, int *rc)
{
	struct rsh_cursor *c = nullptr;

	try {
		io_of io(ioctx);

		c = new rsh_cursor;
		if (!from) {
			c->at.reset(new librados::ObjectCursor(io.object_list_begin()));
			return c;
		}

		std::string oid(from), text = std::to_string(io.get_id());
		uint32_t hash;
		char buf[16];

		*rc = io.get_object_hash_position2(oid, &hash);
		if (!*rc) {
			snprintf(buf, sizeof(buf), ":%08x:", reverse_bits(hash));
			text += buf;
			append_escaped(text, io.get_namespace());
			text += "::";
			append_escaped(text, oid);
			text += ":head";
			c->at.reset(new librados::ObjectCursor);
			if (c->at->from_str(text))
				return c;
			*rc = -EINVAL;
		}
	} catch (...) {
		*rc = errno_of_exception();
	}
	delete c;
	return nullptr;
}

void rsh_cursor_free(struct rsh_cursor *c)
{
	delete c;
}

int rsh_list(rados_ioctx_t ioctx, struct rsh_cursor *c, uint32_t max,
	     void (*name)(void *arg, const char *oid, size_t len), void *arg)
{
	try {
		io_of io(ioctx);
		std::vector<librados::ObjectItem> items;
		std::unique_ptr<librados::ObjectCursor> next(new librados::ObjectCursor);
		int rc;

		rc = io.object_list(*c->at, io.object_list_end(), max, {}, &items, next.get());
		if (rc < 0)
			return rc;
		c->at = std::move(next);
		for (const auto &i : items)
			if (i.locator.empty())
				name(arg, i.oid.data(), i.oid.size());
		return io.object_list_is_end(*c->at) ? 0 : 1;
	} catch (...) {
		return errno_of_exception();
	}
}
