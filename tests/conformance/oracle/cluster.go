package main

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	internalqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"
)

// cluster is the world of one case, in the scheduler's own stores.
type cluster struct {
	informers informers.SharedInformerFactory
	cache     internalcache.Cache
	snapshot  *internalcache.Snapshot
	waiting   []*v1.Pod
}

// newCluster fills informers, cache and snapshot as the scheduler's event handlers would.
func newCluster(ctx context.Context, client kubernetes.Interface, raw [][]byte) (*cluster, error) {
	it := &cluster{
		informers: informers.NewSharedInformerFactory(client, 0),
		cache:     newCache(ctx),
		snapshot:  internalcache.NewEmptySnapshot(),
	}
	logger := klog.FromContext(ctx)
	for index, each := range raw {
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(each, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("objects[%d]: %w", index, err)
		}
		if pod, ok := object.(*v1.Pod); ok && isFinished(pod) {
			continue
		}
		if err := it.informer(object).GetIndexer().Add(object); err != nil {
			return nil, fmt.Errorf("objects[%d]: %w", index, err)
		}
		if err := it.place(logger, object); err != nil {
			return nil, fmt.Errorf("objects[%d]: %w", index, err)
		}
	}
	return it, it.cache.UpdateSnapshot(logger, it.snapshot)
}

// place hands nodes and bound pods to the cache; pods without a node wait.
func (it *cluster) place(logger klog.Logger, object runtime.Object) error {
	switch object := object.(type) {
	case *v1.Node:
		it.cache.AddNode(logger, object)
	case *v1.Pod:
		if object.Spec.NodeName != "" {
			return it.cache.AddPod(logger, object)
		}
		it.waiting = append(it.waiting, object)
	}
	return nil
}

// enqueue puts the waiting pods of this scheduler into its queue, which thereby knows who is nominated where.
func (it *cluster) enqueue(ctx context.Context, queue internalqueue.SchedulingQueue, schedulerName string) {
	for _, pod := range it.waiting {
		if pod.Spec.SchedulerName == schedulerName && len(pod.Spec.SchedulingGates) == 0 {
			add(ctx, queue, pod)
		}
	}
}

// isFinished says what the scheduler's pod informer does not list (its field selector).
func isFinished(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

// informer is the factory's informer for the kind of an object, replaced by one that delivers at once.
func (it *cluster) informer(object runtime.Object) cache.SharedIndexInformer {
	return it.informers.InformerFor(object, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
		byNamespace := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		return atOnce{cache.NewSharedIndexInformer(&cache.ListWatch{}, object, 0, byNamespace)}
	})
}

// atOnce never runs: its store is filled by hand, and a handler is told of everything in it as it is added.
type atOnce struct{ cache.SharedIndexInformer }

func (it atOnce) HasSynced() bool { return true }

func (it atOnce) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return it.AddEventHandlerWithOptions(handler, cache.HandlerOptions{})
}

func (it atOnce) AddEventHandlerWithResyncPeriod(
	handler cache.ResourceEventHandler, _ time.Duration,
) (cache.ResourceEventHandlerRegistration, error) {
	return it.AddEventHandlerWithOptions(handler, cache.HandlerOptions{})
}

func (it atOnce) AddEventHandlerWithOptions(
	handler cache.ResourceEventHandler, options cache.HandlerOptions,
) (cache.ResourceEventHandlerRegistration, error) {
	for _, object := range it.GetStore().List() {
		handler.OnAdd(object, true)
	}
	return it.SharedIndexInformer.AddEventHandlerWithOptions(handler, options)
}

// newCache calls a constructor that differs between minors.
func newCache(ctx context.Context) internalcache.Cache {
	switch construct := any(internalcache.New).(type) {
	case func(context.Context, fwk.APIDispatcher, bool) internalcache.Cache: // 1.36
		return construct(ctx, nil, false)
	case func(context.Context, time.Duration, fwk.APIDispatcher) internalcache.Cache: // 1.35
		return construct(ctx, 0, nil)
	}
	panic("this release makes its cache in a way not known here")
}

type (
	queue136 interface {
		Add(context.Context, *v1.Pod)
	}
	queue135 interface{ Add(klog.Logger, *v1.Pod) }
)

// add calls a method that differs between minors.
func add(ctx context.Context, queue internalqueue.SchedulingQueue, pod *v1.Pod) {
	switch queue := any(queue).(type) {
	case queue136:
		queue.Add(ctx, pod)
	case queue135:
		queue.Add(klog.FromContext(ctx), pod)
	default:
		panic("this release fills its queue in a way not known here")
	}
}
