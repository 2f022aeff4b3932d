// Package etcd lets several replicas of a controller share their keys through etcd. The queues
// stay what they are, in memory and level-triggered; what lies in etcd is what must be shared:
// the objects, the effects, and who is there.
//
//   - [Source] lists and watches a prefix into any typedqueue.ReflectorStore.
//   - [Controller] is the whole of it: a Source, a DeltaFIFO, a Store, a work queue and its
//     workers, for those keys that belong to this replica.
//   - [Task] is what its reconcile function is given: a key, its object, and the right to write
//     effects, which etcd itself checks in each transaction.
//   - [OwnerOf] tells which of several replicas a key belongs to.
//
// README.md has an example, the guarantees with their arguments, the costs and the limits.
package etcd
