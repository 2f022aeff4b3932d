// Package page shows the queues of a running process on a web page, for the moment when
// somebody asks what is stuck: what is processed and for how long, oldest first, what is ready,
// what waits and is due next, the counters and their rates, and a chart of the last five
// minutes. It needs nothing but the standard library and typedqueue, and it only reads.
//
//	p := page.New(page.Options{})
//	page.Watch(p, "orders", q) // any number of queues, at any time
//	go p.Record(ctx)           // so that the charts begin before somebody looks
//	http.Handle("/debug/queues", p)
//
// A queue shows ages only if it tracks time: see [typedqueue.Options].
//
// # What is shown
//
// The first page has all queues in a table, and above it what is stuck: each key that has been
// processed for Options.Stuck or longer, longest first. A queue's name leads to its own page,
// with its keys. A key is shown as fmt prints it, by its String method if it has one. That should
// be quick, wait for no lock that a worker holds, and be safe to call at any time; a panic in it
// does no harm. A pointer without such a method is shown as its type and address: what it
// points to may be changing. Of a long key the first 256 bytes are shown, and its length. What
// cannot be printed, or turns the direction of text, is shown as an escape, set apart.
//
// Of a FIFO or DeltaFIFO the pending keys are shown. It does not tell which keys are processed,
// nor any ages, but how many.
//
// A queue that has been shut down is marked, so that one can see it drain. It disappears when it
// has been collected, since the page holds it weakly; at once with [Entry.Remove]; or when its
// name is given to another queue, which a queue that was shut down allows.
//
// # Parameters
//
// The path of a request does not matter, and every link is a query alone, so the page works
// under any prefix, with http.StripPrefix or without.
//
//	queue=NAME     only this queue, with its keys; NAME as it is, or as it is shown, with escapes
//	name=PART      only queues whose name contains this, as it is or as it is shown
//	key=PART       only keys whose text contains this, likewise, in all queues that are shown
//	limit=N        how long a list may be, 1 to 1000; 100 if left out
//	refresh=off    a page that stands still
//	format=json    the same as JSON
//
// Names and parts may have up to 1024 bytes. A list that was cut says how many there are. On a
// page with keys of several queues there are never more than 1000 rows of keys in all, besides
// what is stuck.
//
// What cannot be understood is answered with 400 and a line of text; a queue that is not there
// with 404, as JSON an object with the one field error.
//
// # JSON
//
// Times are seconds, as numbers; what is not known is null. Fields may be added, but those that
// are there keep their names and meaning.
//
//	title, at             the page's title, and the moment, in RFC 3339
//	stuckAfterSeconds     Options.Stuck
//	stuck                 a list of keys; not with queue=
//	queues                a list of queues
//
// A list has total, matching (of those, how many the filter lets through) and items, of which
// there may be fewer. A key has key (at most 256 bytes; invalid UTF-8 is replaced), keyBytes (its
// length, if it was cut), queue (in stuck), forSeconds and stuck (in processing), position (in
// ready; the place in line, from 1) and inSeconds (in waiting). A queue has:
//
//	name, shutDown
//	stuck                 whether something is processed for too long
//	oldestSeconds         the longest time that something is processed; null if nothing is, or the queue does not track time
//	unfinishedSeconds     the sum of all such times
//	ready, processing, waiting
//	adds, merged, retries, dropped, strayDones
//	                      each with total, and perSecond over the last rateSeconds
//	rateSeconds           a minute, or as long as there have been samples; 0 if there is none
//	keys                  with queue= or key= only: processing (null if the queue does not tell), ready, waiting; lists of keys
//	history               with queue= only: samples of the last five minutes, oldest first, each with
//	                      agoSeconds, oldestSeconds, ready, processing, waiting, adds
//
// # Charts
//
// The package starts no goroutine. A sample is taken when somebody looks, and each second while
// [Page.Record] runs, but never within half a second of the one before. A chart has a column for
// every two seconds, which shows the highest of its samples; where there was none it is grey,
// and nothing is drawn: no line leads over a gap.
//
// # Cost
//
// A look, like a sample, calls Stats of every queue: O(1), and O(n) with n items in processing
// if it tracks time. Keys are asked for only where they are shown: of a queue with something
// stuck, of the one queue on its own page, and, when somebody looks for a key, of all that match.
// Each time that is one Snapshot (or ListKeys), which blocks the queue while it copies all its
// keys, O(n), and takes memory for as many. An open page asks more than once in a second.
//
// No lock is held while text is made, nor while it is sent: all is in memory by then, and a slow
// reader holds up nobody. A look keeps no queue alive but while it reads.
//
// # Who may see it
//
// Names and keys may be secret, and whoever reaches the page can make the queues be copied. It
// knows no users and looks at no Host header: bind it to a loopback address, or put something in
// front that asks who is there, and refuses unknown hosts, since a web site can make a browser
// ask a loopback address under a name of its own (DNS rebinding).
//
// The page cannot be framed, nothing is cached, and its content policy allows its own script and
// style, by their hashes, and nothing else. It works without JavaScript, by loading itself anew.
package page
