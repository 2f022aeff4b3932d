// Package wakeups holds tests that count who is woken by what, in the runtime's own trace, and
// that see whose turn it is. No model can do the former: where eight getters wake for one item
// and seven sleep again, what is handed out is the same. It has no code of its own.
package wakeups
