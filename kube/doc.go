// Package kube binds typedqueue to Kubernetes. The work queues of typedqueue are client-go's
// as they are, by their methods; what is here is for the rest:
//
//   - [NewQueue] and [PriorityQueue], for controller-runtime's controllers;
//   - [AsReflectorStore], [AsQueue] and [AsIndexer], which let client-go's Reflector, Controller
//     and listers work on a Store, FIFO or DeltaFIFO;
//   - [Publisher] and [Recorder], metrics for and from client-go's MetricsProvider.
//
// README.md is a guide for those who come from client-go or controller-runtime, with code
// before and after; DIFFERENCES.md is what then behaves differently; BENCHMARKS.md has the
// figures.
package kube
