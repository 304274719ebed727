# cython: language_level=3, wraparound=False, freethreading_compatible=True
"""StreamBridge passes outputs from the engine's stream-back thread to asyncio tasks and threads.

The engine calls StreamBridge once per batch of outputs and takes the GIL once for it. The bridge
splits the batch by request, wakes each event loop that is concerned once, and puts one item into
the queue of each waiting thread. The consumer does all other work (joining deltas, making objects)
on its own thread, for all outputs that have arrived meanwhile.

A request has one channel, and a channel one consumer; a channel may serve several requests. The
bridge holds a channel until the final outputs of its requests have been passed on or the consumer
gives up; it never keeps an engine alive. Another thread or task may give up for a consumer that
waits, which then gets the end. The id of a request is in use until its final output has come, also
if the consumer gave up: otherwise its last outputs would reach the next request of that id.

A call that lacks memory raises MemoryError and is repeated by the engine with the same batch; it
goes on where it stopped, so that no output is lost and none arrives twice.

A bridge guards its table of channels, and a channel what it holds, by critical sections, in this
order. They are nothing in a Python with a GIL, which does the same: what a section does happens at
once unless code of Python runs within it. No section is held while a thread waits.
"""

cimport cython

from asyncio import _get_running_loop
from queue import SimpleQueue

from mlc_native.errors import EngineRequestError, EngineTerminatedError


cdef class CallbackStreamOutput:
    """The new output of one sequence of a request or, in the last one of a request, its usage.

    delta_text: valid UTF-8. delta_token_ids: the tokens of delta_text, without stop tokens.
    delta_logprob_json_strs: one JSON object per token if logprobs were requested, else None.
    finish_reason: None before the end of the sequence. request_final_usage_json_str: set only in
    the last output of a request. scored_prompt: see ScoredPrompt in serve/prompt_logprobs.py; set
    only in the first output of the first sequence of a request with prompt_logprobs. Each access
    makes it, which takes long for a long prompt. embedding: bytes of float32, only in the output of a
    request that embeds its prompt. request_id: of the request.
    """

    cdef readonly str request_id
    cdef readonly str delta_text
    cdef readonly list delta_token_ids
    cdef readonly list delta_logprob_json_strs
    cdef readonly str finish_reason
    cdef readonly str request_final_usage_json_str
    cdef object _with_results  # the RequestStreamOutput that has results of its prompt, or None

    @property
    def has_scored_prompt(self):
        return self._with_results is not None and self._with_results.has_scored_prompt

    @property
    def scored_prompt(self):
        return None if self._with_results is None else self._with_results.scored_prompt

    @property
    def embedding(self):
        return None if self._with_results is None else self._with_results.embedding

    def __repr__(self):
        return (
            f"CallbackStreamOutput(delta_text={self.delta_text!r}, "
            f"finish_reason={self.finish_reason!r}, "
            f"request_final_usage_json_str={self.request_final_usage_json_str!r})"
        )


cdef CallbackStreamOutput _usage_output(str request_id, str usage):
    cdef CallbackStreamOutput output = CallbackStreamOutput.__new__(CallbackStreamOutput)
    output.request_id = request_id
    output.delta_text = ""
    output.delta_token_ids = []
    output.request_final_usage_json_str = usage
    return output


# A delta is (text, token_ids, logprob_json_strs or None, finish_reason or None).
cdef CallbackStreamOutput _delta_output(str request_id, tuple delta):
    cdef CallbackStreamOutput output = CallbackStreamOutput.__new__(CallbackStreamOutput)
    output.request_id = request_id
    output.delta_text = delta[0]
    output.delta_token_ids = delta[1]
    output.delta_logprob_json_strs = delta[2]
    output.finish_reason = delta[3]
    return output


cdef _append_delta(CallbackStreamOutput output, tuple delta):
    output.delta_text += delta[0]
    output.delta_token_ids += delta[1]
    if delta[2] is not None:
        if output.delta_logprob_json_strs is None:
            output.delta_logprob_json_strs = delta[2]
        else:
            output.delta_logprob_json_strs += delta[2]
    if output.finish_reason is None:
        output.finish_reason = delta[3]


cdef bint _has_more_than_the_error(list outputs):
    """Whether outputs have something in front of the error of their request. The exception says
    that it ended with one, so none of them does.
    """
    cdef CallbackStreamOutput output
    cdef bint has_more = False
    for output in outputs:
        if output.finish_reason == "error":
            output.finish_reason = None
        if output.delta_text or output.delta_token_ids or output.finish_reason is not None:
            has_more = True
    return has_more


cdef class Channel:
    """The outputs of one or several requests on their way to their consumer."""

    cdef readonly str request_id  # of the first one
    # No further output follows: the final output of each request was taken, or an error was raised.
    cdef readonly bint finished
    cdef set _open  # ids of the requests that have not ended for the consumer
    cdef str _taken_id  # the request that outputs were taken of last
    cdef list _pending  # RequestStreamOutput, oldest first; or an exception that ends all requests
    cdef Py_ssize_t _taken
    cdef object _error
    cdef object __weakref__

    def __cinit__(self, str request_id, *args):
        self.request_id = request_id
        self._open = {request_id}
        self._pending = []

    # The methods below that are no properties require the critical section of the channel.

    @property
    def open_ids(self):
        """The ids of the requests that have not ended."""
        with cython.critical_section(self):
            return list(self._open)

    cdef bint _has_pending(self):
        return self._taken < len(self._pending) or self._error is not None

    cdef _add(self, list items):
        """Adds outputs that have arrived."""
        if not self._has_pending():
            self._clear()
        self._pending += items

    cdef list _take(self):
        """Joins pending deltas of one request. Its usage is returned alone, after them. Raises the
        error that ended it. None if what is pending belongs to requests that have ended.
        """
        cdef list outputs = None
        cdef list pending, group
        cdef Py_ssize_t i
        while self._error is None and self._taken < len(self._pending):
            pending = self._pending
            item = pending[self._taken]
            if isinstance(item, BaseException):
                if outputs is not None:
                    return outputs
                self._end_all()
                raise item
            request_id, is_final = item.request_id, item.is_final
            if self._pending is not pending:
                continue  # the consumer gave up meanwhile, on another thread
            if outputs is not None and (is_final or request_id != self._taken_id):
                return outputs
            self._taken += 1
            if request_id not in self._open:
                continue  # the usage of a request that an error has ended
            self._taken_id = request_id
            if is_final:
                self._end(request_id)
                return [_usage_output(request_id, item.request_final_usage_json_str)]
            group = item.unpack_deltas()
            if outputs is None:
                outputs = [_delta_output(request_id, delta) for delta in group]
            else:
                for i in range(len(group)):
                    _append_delta(outputs[i], group[i])
            if item.has_prompt_results:
                (<CallbackStreamOutput>outputs[0])._with_results = item
            message = item.error_message
            if message:
                self._error = EngineRequestError(request_id, message)
                if _has_more_than_the_error(outputs):
                    return outputs
        if self._error is not None:
            error, self._error = self._error, None
            self._end(self._taken_id)
            raise error
        self._clear()
        return outputs

    cdef _end(self, str request_id):
        self._open.discard(request_id)
        if not self._open:
            self._end_all()

    cdef _end_all(self):
        self._open.clear()
        self.finished = True
        self._clear()

    cdef _clear(self):
        self._pending = []
        self._taken = 0

    cdef _wake(self):
        """Makes a consumer that waits look again. Not within the critical section."""


cdef class SyncChannel(Channel):
    """A channel whose consumer is a thread."""

    cdef object _queue
    cdef bint _interrupted

    def __cinit__(self, str request_id):
        self._queue = SimpleQueue()

    cdef _push(self, list items):
        self._queue.put(items)

    cdef _wake(self):
        self._queue.put([])

    def interrupt(self):
        """Makes ``next`` return None from now on, on whatever thread it waits."""
        self._interrupted = True
        self._wake()

    def next(self):
        """Returns the next outputs of a request, one per sequence; None after the last. Waits
        without the GIL.

        Raises EngineRequestError if the engine ended a request with an error.
        """
        cdef list outputs = None
        cdef list items
        cdef bint must_wait
        while outputs is None and not self.finished and not self._interrupted:
            with cython.critical_section(self):
                must_wait = not self._has_pending()
            items = self._queue.get() if must_wait else []
            while must_wait and not self._queue.empty():
                items += self._queue.get()
            with cython.critical_section(self):
                self._add(items)
                outputs = self._take()
        if self.finished:
            self._wake()  # another thread that waits, against the rules, must not wait forever
        return outputs


cdef class AsyncChannel(Channel):
    """A channel whose consumer is a task of the event loop it was opened on."""

    cdef readonly object loop
    cdef object _waiter

    def __cinit__(self, str request_id, loop):
        self.loop = loop

    cdef _wake_waiter(self):
        # On the loop's thread.
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    cdef _wake(self):
        if _get_running_loop() is self.loop:
            self._wake_waiter()
            return
        try:
            self.loop.call_soon_threadsafe(_deliver, [(self, [])])
        except RuntimeError:
            pass  # a loop that is closed has no task that waits

    @property
    def has_waiter(self):
        """Whether a task waits for outputs: another one must not."""
        waiter = self._waiter
        return waiter is not None and not waiter.cancelled()

    async def next(self):
        """Returns the next outputs of a request, one per sequence; None after the last.

        Raises EngineRequestError if the engine ended a request with an error.
        """
        cdef list outputs = None
        while outputs is None and not self.finished:
            while not self._is_ready() and not self.finished:
                waiter = self._waiter = self.loop.create_future()
                try:
                    await waiter
                finally:
                    if self._waiter is waiter:
                        self._waiter = None
            outputs = self._take_ready()
        return outputs

    cdef bint _is_ready(self):
        with cython.critical_section(self):
            return self._has_pending()

    cdef list _take_ready(self):
        with cython.critical_section(self):
            return self._take()


def _deliver(list batch):
    """Delivers an event loop's part of a batch, the last item first, on the thread of that loop.

    What it has no memory for is tried again when the loop has done other work.
    """
    cdef AsyncChannel channel
    while batch:
        channel, items = batch[len(batch) - 1]
        try:
            with cython.critical_section(channel):
                channel._add(items)
        except MemoryError:
            channel.loop.call_soon(_deliver, batch)
            return
        batch.pop()
        channel._wake_waiter()


cdef list _parts(dict batch):
    """(SyncChannel, items) and (loop, [(channel, items)]), in lists whose ends come first."""
    cdef dict by_loop = {}
    cdef list parts = []
    cdef list of_loop
    for channel, items in reversed(batch.items()):
        if isinstance(channel, SyncChannel):
            parts.append((channel, items))
            continue
        loop = (<AsyncChannel>channel).loop
        of_loop = by_loop.get(loop)
        if of_loop is None:
            by_loop[loop] = of_loop = []
            parts.append((loop, of_loop))
        of_loop.append((channel, items))
    return parts


cdef class StreamBridge:
    """The engine's stream callback, described at the top of this file.

    Args:
        abort: abort(request_id), called for requests that nobody reads any more. Must not block.
    """

    cdef dict _channels
    cdef set _given_up  # ids of requests without a channel whose final outputs are to come
    cdef set _held  # ids of requests that are being aborted
    # Of the engine's thread: the batch that lacked memory, and its parts that are to be handed over.
    cdef object _begun
    cdef list _unsent
    cdef object _abort
    cdef bint _closed

    def __cinit__(self, abort=None):
        self._channels = {}
        self._given_up = set()
        self._held = set()
        self._abort = abort

    def open_sync(self, str request_id):
        """Opens a channel for a thread. Raises ValueError if the id is in use."""
        return self._open(SyncChannel(request_id))

    def open_async(self, str request_id, loop):
        """Opens a channel for a task of ``loop``. Raises ValueError if the id is in use."""
        return self._open(AsyncChannel(request_id, loop))

    cdef Channel _open(self, Channel channel):
        with cython.critical_section(self):
            self._register(channel, channel.request_id)
        return channel

    cdef _register(self, Channel channel, str request_id):
        # Requires: the critical section of the bridge.
        if self._closed:
            raise EngineTerminatedError("the engine was terminated")
        if (
            request_id in self._given_up
            or request_id in self._held
            or self._channels.setdefault(request_id, channel) is not channel
        ):
            raise ValueError(f'the request id "{request_id}" is in use')

    def join(self, Channel channel, str request_id):
        """Adds a request to a channel. Raises ValueError if the id is in use."""
        with cython.critical_section(self, channel):
            if request_id in channel._open:
                raise ValueError(f'the request id "{request_id}" is in use')
            self._register(channel, request_id)
            channel._open.add(request_id)
            channel.finished = False

    def discard(self, Channel channel, request_id=None):
        """Closes a channel whose consumer gave up, or one request of it that the engine refused.

        Later outputs are dropped. Returns the ids of the requests that have not ended; the caller
        aborts them.
        """
        cdef list ids, dropped
        with cython.critical_section(self, channel):
            ids = list(channel._open) if request_id is None else [request_id]
            dropped = [id_ for id_ in ids if self._channels.get(id_) is channel]
            for id_ in dropped:
                self._channels.pop(id_, None)
                if request_id is None:
                    self._given_up.add(id_)
            if request_id is None:
                channel._end_all()
            else:
                channel._end(request_id)
        channel._wake()
        return dropped

    def give_up(self, Channel channel):
        """Closes a channel that nobody reads any more, and aborts its requests.

        Their ids are in use until it returns: an abort that comes after the end of its request does
        not reach the next one of that id.
        """
        cdef list ids
        with cython.critical_section(self, channel):
            ids = [id_ for id_ in channel._open if self._channels.get(id_) is channel]
            for request_id in ids:
                self._held.add(request_id)
            abort = self._abort
        try:
            for request_id in self.discard(channel):
                if abort is not None:
                    abort(request_id)
        finally:
            with cython.critical_section(self):
                for request_id in ids:
                    self._held.discard(request_id)

    def __len__(self):
        return len(self._channels)

    def __call__(self, outputs):
        """The engine's callback. ``outputs`` is a batch of RequestStreamOutput."""
        if self._begun is not outputs:
            self._unsent = self._sort(outputs)
            self._begun = outputs
        self._hand_over(self._unsent)
        self._begun = None

    cdef list _sort(self, outputs):
        """The parts of a batch. From then on the ids of the requests that it ends are free."""
        cdef dict batch = {}
        cdef list ended = []
        cdef list items, parts
        for output in outputs:
            request_id, is_final = output.request_id, output.is_final
            if is_final:
                ended.append(request_id)
            with cython.critical_section(self):
                channel = self._channels.get(request_id)
            if channel is None:
                continue  # the consumer gave up
            items = batch.get(channel)
            if items is None:
                batch[channel] = [output]
            else:
                items.append(output)
        parts = _parts(batch)
        with cython.critical_section(self):
            for request_id in ended:
                self._channels.pop(request_id, None)
                self._given_up.discard(request_id)
        return parts

    def close(self, str reason):
        """Ends every open channel with EngineTerminatedError. No output may follow."""
        with cython.critical_section(self):
            self._closed = True
            self._abort = None
            channels = list(self._channels.values())
            self._channels.clear()
        self._hand_over(_parts({channel: [EngineTerminatedError(reason)] for channel in channels}))

    cdef _hand_over(self, list parts):
        # What a part has no memory for stays, with the parts behind it.
        while parts:
            target, part = parts[len(parts) - 1]
            if isinstance(target, SyncChannel):
                (<SyncChannel>target)._push(part)
            else:
                try:
                    target.call_soon_threadsafe(_deliver, part)
                except RuntimeError:  # the loop is closed, so these will never be read
                    for channel, _ in part:
                        self.give_up(channel)
            parts.pop()
