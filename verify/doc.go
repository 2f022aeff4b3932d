// Package verify holds checks of typedqueue that need what its own module must not require:
// golang.org/x/exp above all. It has no API.
package verify
