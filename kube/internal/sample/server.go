package sample

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
)

var deployments = appsv1.SchemeGroupVersion.WithResource("deployments")

// server is client-go's fake clientset, with what its tracker leaves to a real API server
// and a controller relies on: resource versions and the conflicts that follow from them,
// generations, and a status that is written apart from the rest. It is also the user who
// changes what it holds, and it fails as the phase says.
type server struct {
	client   *fake.Clientset
	tracker  clienttesting.ObjectTracker
	watching chan struct{} // closed once somebody watches: the tracker tells a later watch of no earlier deletion

	seed uint64
	user *rand.Rand                 // for Play's goroutine alone
	want map[cache.ObjectName]int32 // replicas of each object that exists, as the user knows it

	// mu guards what follows. The clientset calls reactors one at a time, but the phase and
	// the counts are others' too.
	mu      sync.Mutex
	phase   Phase
	luck    map[cache.ObjectName]*rand.Rand // each object has its own, so that its fate hangs on its own history
	version int64
	changes Changes
	faults  Faults
}

// Changes are what the user has done, after the objects that exist at first.
type Changes struct{ Created, Updated, Deleted int }

// Faults are status updates that failed.
type Faults struct {
	Conflicts int // the object had changed since it was read
	Injected  int // conflicts that the phase asked for
	Errors    int // other errors that the phase asked for
}

func newServer(seed uint64) *server {
	s := &server{
		client:   new(fake.Clientset), // NewClientset's tracks the managers of fields as well, and takes 200 times as long
		tracker:  clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder()),
		watching: make(chan struct{}),
		seed:     seed,
		user:     rand.New(rand.NewPCG(seed, 0)),
		want:     map[cache.ObjectName]int32{},
		luck:     map[cache.ObjectName]*rand.Rand{},
	}
	s.client.AddReactor("update", "deployments/status", s.fail)
	s.client.AddReactor("update", "deployments", s.update)
	s.client.AddReactor("create", "deployments", s.create)
	s.client.AddReactor("*", "*", clienttesting.ObjectReaction(s.tracker))
	s.client.AddWatchReactor("deployments", s.watch)
	return s
}

func (s *server) watch(action clienttesting.Action) (handled bool, w watch.Interface, err error) {
	w, err = s.tracker.Watch(deployments, action.GetNamespace(), action.(clienttesting.WatchActionImpl).ListOptions)
	if err == nil {
		close(s.watching) // a second watch would be a fault of this program, and panics
	}
	return true, w, err
}

// fail is the reactor that makes some status updates fail.
func (s *server) fail(action clienttesting.Action) (handled bool, _ runtime.Object, err error) {
	d := action.(clienttesting.UpdateActionImpl).GetObject().(*appsv1.Deployment)
	name := cache.MetaObjectToName(d)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.luck[name]
	if r == nil {
		r = rand.New(rand.NewPCG(s.seed, hash(name)))
		s.luck[name] = r
	}
	switch p := r.Float64(); {
	case p < s.phase.Conflicts:
		s.faults.Injected++
		err = apierrors.NewConflict(deployments.GroupResource(), d.Name, fmt.Errorf("injected"))
	case p < s.phase.Conflicts+s.phase.Errors:
		s.faults.Errors++
		err = transient[r.IntN(len(transient))]
	}
	return err != nil, nil, err
}

// transient are errors after which one tries again.
var transient = []error{
	apierrors.NewInternalError(fmt.Errorf("injected")),
	apierrors.NewServerTimeout(deployments.GroupResource(), "update", 0),
	apierrors.NewTooManyRequestsError("injected"),
	apierrors.NewTimeoutError("injected", 0),
}

func hash(name cache.ObjectName) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name.String())) // never fails
	return h.Sum64()
}

// create is the reactor that completes what the tracker then takes.
func (s *server) create(action clienttesting.Action) (handled bool, _ runtime.Object, err error) {
	d := action.(clienttesting.CreateActionImpl).GetObject().(*appsv1.Deployment)
	d.Generation, d.Status = 1, appsv1.DeploymentStatus{}
	d.ResourceVersion = s.nextVersion()
	d.UID = types.UID(d.ResourceVersion)
	return false, nil, nil
}

// update is the reactor that refuses what is out of date, and completes what the tracker
// then takes.
func (s *server) update(action clienttesting.Action) (handled bool, _ runtime.Object, err error) {
	d := action.(clienttesting.UpdateActionImpl).GetObject().(*appsv1.Deployment)
	obj, err := s.tracker.Get(deployments, d.Namespace, d.Name)
	if err != nil {
		return true, nil, err
	}
	stored := obj.(*appsv1.Deployment)
	ofStatus := action.GetSubresource() == "status"
	if d.UID != stored.UID || d.ResourceVersion != stored.ResourceVersion {
		s.countConflict(ofStatus)
		return true, nil, apierrors.NewConflict(deployments.GroupResource(), d.Name, fmt.Errorf("it has changed"))
	}
	if ofStatus {
		status := d.Status
		stored.DeepCopyInto(d)
		d.Status = status
	} else {
		d.Status, d.Generation = stored.Status, stored.Generation
		if !equality.Semantic.DeepEqual(d.Spec, stored.Spec) {
			d.Generation++
		}
	}
	d.ResourceVersion = s.nextVersion()
	return false, nil, nil
}

func (s *server) countConflict(ofStatus bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ofStatus {
		s.faults.Conflicts++
	}
}

func (s *server) nextVersion() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	return strconv.FormatInt(s.version, 10)
}

func (s *server) begin(p Phase) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase = p
}

func (s *server) phaseNow() Phase {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.phase
}

func (s *server) soFar() (Changes, Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changes, s.faults
}

// seedObjects creates the first n objects.
func (s *server) seedObjects(ctx context.Context, n int) error {
	for i := range n {
		if err := s.set(ctx, nameOf(i), s.user.Int32N(10)); err != nil {
			return err
		}
	}
	return nil
}

func nameOf(i int) cache.ObjectName {
	return cache.NewObjectName(fmt.Sprintf("ns-%d", i%7), fmt.Sprintf("app-%04d", i))
}

// change does the user's next change to one of n objects, half of the time to one of the
// hot ones, a fiftieth: create it if it does not exist, or else delete it, or, four times as
// often, give it another number of replicas.
func (s *server) change(ctx context.Context, n int) error {
	if s.user.IntN(2) == 0 {
		n = max(1, n/50)
	}
	name, replicas := nameOf(s.user.IntN(n)), s.user.Int32N(10)
	_, exists := s.want[name]
	remove := exists && s.user.IntN(5) == 0
	s.countChange(exists, remove)
	if remove {
		delete(s.want, name)
		return s.client.AppsV1().Deployments(name.Namespace).Delete(ctx, name.Name, metav1.DeleteOptions{})
	}
	return s.set(ctx, name, replicas)
}

func (s *server) countChange(exists, remove bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case remove:
		s.changes.Deleted++
	case exists:
		s.changes.Updated++
	default:
		s.changes.Created++
	}
}

func (s *server) set(ctx context.Context, name cache.ObjectName, replicas int32) error {
	_, exists := s.want[name]
	s.want[name] = replicas
	client := s.client.AppsV1().Deployments(name.Namespace)
	if !exists {
		_, err := client.Create(ctx, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name},
			Spec:       appsv1.DeploymentSpec{Replicas: &replicas},
		}, metav1.CreateOptions{})
		return err
	}
	return retry.RetryOnConflict(patience, func() error { // the controller writes the same object
		d, err := client.Get(ctx, name.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		d.Spec.Replicas = &replicas
		_, err = client.Update(ctx, d, metav1.UpdateOptions{})
		return err
	})
}

// patience is how the user tries again.
var patience = wait.Backoff{Steps: 1000, Duration: time.Millisecond}

// check reports the first object whose status is not of its last spec, and whether the user
// and the server agree on what exists.
func (s *server) check() error {
	list, err := s.tracker.List(deployments, appsv1.SchemeGroupVersion.WithKind("Deployment"), metav1.NamespaceAll)
	if err != nil {
		return err
	}
	items := list.(*appsv1.DeploymentList).Items
	if len(items) != len(s.want) {
		return fmt.Errorf("the server has %d objects, not %d", len(items), len(s.want))
	}
	for _, d := range items {
		replicas, exists := s.want[cache.MetaObjectToName(&d)]
		switch {
		case !exists:
			return fmt.Errorf("%s/%s has been deleted, and is there", d.Namespace, d.Name)
		case *d.Spec.Replicas != replicas:
			return fmt.Errorf("%s/%s wants %d replicas, not %d", d.Namespace, d.Name, *d.Spec.Replicas, replicas)
		case !current(&d):
			return fmt.Errorf("%s/%s of generation %d, %d replicas, has status %d, %d",
				d.Namespace, d.Name, d.Generation, replicas, d.Status.ObservedGeneration, d.Status.Replicas)
		}
	}
	return nil
}
