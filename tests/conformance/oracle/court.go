package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	resourceslicetracker "k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"
	internalqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
)

const noNodes = "no nodes available to schedule pods"

// court holds what all cases share: a client that nobody calls, the registry, the profiles seen.
type court struct {
	client   kubernetes.Interface
	recorder *metrics.MetricAsyncRecorder
	profiles map[string]profileOrError
}

type profileOrError struct {
	profile *config.KubeSchedulerProfile
	err     error
}

func newCourt() (*court, error) {
	metrics.Register()
	client, err := kubernetes.NewForConfig(&restclient.Config{Host: "http://cluster.invalid"})
	if err != nil {
		return nil, err
	}
	recorder := metrics.NewMetricsAsyncRecorder(1000, time.Second, context.Background().Done())
	return &court{client: client, recorder: recorder, profiles: map[string]profileOrError{}}, nil
}

// judge runs one scheduling cycle of the case's pod, all nodes filtered and no score left out.
func (it *court) judge(asked *testCase) (verdict, error) {
	profile, err := it.profile(asked.Config)
	if err != nil {
		return nil, err
	}
	pod, err := decodePod(asked.Pod)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.TODO()))
	defer cancel()
	raw := make([][]byte, len(asked.Objects))
	for index, object := range asked.Objects {
		raw[index] = object
	}
	world, err := newCluster(ctx, it.client, raw)
	if err != nil {
		return nil, err
	}
	trial, err := it.newTrial(ctx, world, profile, pod)
	if err != nil {
		return nil, err
	}
	found, err := trial.cycle(ctx)
	if err == nil && asked.Preempt != nil {
		err = trial.preempt(ctx, asked.Preempt.Nodes, found)
	}
	if err == nil && asked.DryRun != nil {
		err = trial.dryRun(ctx, asked.DryRun, found)
	}
	return found, err
}

// profile decodes, defaults and validates a profile as kube-scheduler does with its configuration file.
func (it *court) profile(raw []byte) (*config.KubeSchedulerProfile, error) {
	found, ok := it.profiles[string(raw)]
	if !ok {
		found.profile, found.err = loadProfile(raw)
		it.profiles[string(raw)] = found
	}
	return found.profile, found.err
}

func loadProfile(raw []byte) (*config.KubeSchedulerProfile, error) {
	profile := string(raw)
	if profile == "" || profile == "null" {
		profile = "{}"
	}
	document := `{"apiVersion":"kubescheduler.config.k8s.io/v1","kind":"KubeSchedulerConfiguration","profiles":[` + profile + `]}`
	object, _, err := scheme.Codecs.UniversalDecoder().Decode([]byte(document), nil, nil)
	if err != nil {
		return nil, err
	}
	loaded := object.(*config.KubeSchedulerConfiguration)
	// Decoding clears it, and kube-scheduler sets it again.
	loaded.APIVersion = "kubescheduler.config.k8s.io/v1"
	if err := validation.ValidateKubeSchedulerConfiguration(loaded); err != nil {
		return nil, err
	}
	return &loaded.Profiles[0], nil
}

func decodePod(raw []byte) (*v1.Pod, error) {
	object, _, err := clientscheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("pod: %w", err)
	}
	pod, ok := object.(*v1.Pod)
	if !ok {
		return nil, fmt.Errorf("pod: is a %T", object)
	}
	return pod, nil
}

// trial is one pod before one cluster.
type trial struct {
	framework  framework.Framework
	world      *cluster
	pod        *v1.Pod
	state      fwk.CycleState
	weights    map[string]int64
	preemption *defaultpreemption.DefaultPreemption
}

func (it *court) newTrial(
	ctx context.Context, world *cluster, profile *config.KubeSchedulerProfile, pod *v1.Pod,
) (*trial, error) {
	made := &trial{world: world, pod: pod, state: framework.NewCycleState(), weights: map[string]int64{}}
	draManager, err := newDRAManager(ctx, world, it.client)
	if err != nil {
		return nil, err
	}
	made.framework, err = frameworkruntime.NewFramework(ctx, made.registry(), profile,
		frameworkruntime.WithClientSet(it.client),
		frameworkruntime.WithInformerFactory(world.informers),
		frameworkruntime.WithSharedDRAManager(draManager),
		frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(world.informers.Storage().V1().CSINodes().Lister())),
		frameworkruntime.WithSnapshotSharedLister(world.snapshot),
		frameworkruntime.WithMetricsRecorder(it.recorder),
		frameworkruntime.WithWaitingPods(frameworkruntime.NewWaitingPodsMap()),
	)
	if err != nil {
		return nil, err
	}
	queue := internalqueue.NewSchedulingQueue(
		made.framework.QueueSortFunc(), world.informers, internalqueue.WithMetricsRecorder(it.recorder))
	world.enqueue(ctx, queue, profile.SchedulerName)
	made.framework.SetPodNominator(queue)
	for _, each := range made.framework.ListPlugins().Score.Enabled {
		made.weights[each.Name] = int64(each.Weight)
	}
	return made, nil
}

// registry is the in-tree one, but for the preemption plugin being remembered: its dry run is no extension point.
func (it *trial) registry() frameworkruntime.Registry {
	registry := plugins.NewInTreeRegistry()
	factory := registry[names.DefaultPreemption]
	registry[names.DefaultPreemption] = func(
		ctx context.Context, args runtime.Object, handle fwk.Handle,
	) (fwk.Plugin, error) {
		plugin, err := factory(ctx, args, handle)
		it.preemption, _ = plugin.(*defaultpreemption.DefaultPreemption)
		return plugin, err
	}
	return registry
}

func newDRAManager(ctx context.Context, world *cluster, client kubernetes.Interface) (fwk.SharedDRAManager, error) {
	if !utilfeature.DefaultFeatureGate.Enabled(features.DynamicResourceAllocation) {
		return nil, nil
	}
	if utilfeature.DefaultFeatureGate.Enabled(features.DRADeviceTaintRules) {
		return nil, fmt.Errorf("DeviceTaintRules are on by default in this release: the tracker needs their informer")
	}
	resources := world.informers.Resource().V1()
	claims := assumecache.NewAssumeCache(klog.FromContext(ctx), resources.ResourceClaims().Informer(), "ResourceClaim", "", nil)
	tracker, err := resourceslicetracker.StartTracker(ctx, resourceslicetracker.Options{
		EnableConsumableCapacity: utilfeature.DefaultFeatureGate.Enabled(features.DRAConsumableCapacity),
		SliceInformer:            resources.ResourceSlices(),
		KubeClient:               client,
	})
	if err != nil {
		return nil, err
	}
	manager := dynamicresources.NewDRAManager(ctx, claims, tracker, world.informers)
	if utilfeature.DefaultFeatureGate.Enabled(features.DRAExtendedResource) {
		// As the scheduler's event handlers do: else no extended resource would be known to stand for devices.
		if handler, ok := manager.DeviceClassResolver().(cache.ResourceEventHandler); ok {
			_, err = resources.DeviceClasses().Informer().AddEventHandler(handler)
		}
	}
	return manager, err
}

// cycle is Scheduler.schedulePod without sampling, extenders and the shortcuts for one feasible or nominated node.
func (it *trial) cycle(ctx context.Context) (verdict, error) {
	nodes, err := it.world.snapshot.NodeInfos().List()
	if err != nil {
		return nil, err
	}
	if len(nodes) == 0 {
		return rejected(fwk.NewStatus(fwk.UnschedulableAndUnresolvable, noNodes)), nil
	}
	result, status, setters := it.framework.RunPreFilterPlugins(ctx, it.state, it.pod)
	if !status.IsSuccess() {
		return rejected(status), nil
	}
	found := rejected(nil)
	outside := fwk.NewStatus(fwk.UnschedulableAndUnresolvable,
		fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", sets.List(setters)))
	filtered, feasible, failed := map[string]any{}, []fwk.NodeInfo{}, false
	for _, node := range nodes {
		name := node.Node().Name
		status := outside
		if result.AllNodes() || result.NodeNames.Has(name) {
			status = it.framework.RunFilterPluginsWithNominatedPods(ctx, it.state, it.pod, node)
		}
		filtered[name] = shown(status)
		if status.IsSuccess() {
			feasible = append(feasible, node)
		}
		failed = failed || !status.IsSuccess() && !status.IsRejected()
	}
	found["filter"] = filtered
	if failed || len(feasible) == 0 {
		return found, nil
	}
	return found, it.score(ctx, feasible, found)
}

func (it *trial) score(ctx context.Context, feasible []fwk.NodeInfo, found verdict) error {
	scores, totals := map[string]map[string]int64{}, map[string]int64{}
	found["score"], found["total"] = scores, totals
	if !it.framework.HasScorePlugins() {
		for _, node := range feasible {
			scores[node.Node().Name], totals[node.Node().Name] = map[string]int64{}, 1
		}
		return nil
	}
	if status := it.framework.RunPreScorePlugins(ctx, it.state, it.pod, feasible); !status.IsSuccess() {
		return status.AsError()
	}
	ranked, status := it.framework.RunScorePlugins(ctx, it.state, it.pod, feasible)
	if !status.IsSuccess() {
		return status.AsError()
	}
	for _, node := range ranked {
		byPlugin := map[string]int64{}
		for _, weighted := range node.Scores {
			byPlugin[weighted.Name] = weighted.Score / it.weights[weighted.Name]
		}
		scores[node.Name], totals[node.Name] = byPlugin, node.TotalScore
	}
	return nil
}

func rejected(status *fwk.Status) verdict {
	return verdict{
		"preFilter": shown(status),
		"filter":    map[string]any{},
		"score":     map[string]any{},
		"total":     map[string]any{},
	}
}

// shown is a status in the words of the format; nil is Success.
func shown(status *fwk.Status) map[string]any {
	if status.IsSuccess() {
		return map[string]any{"code": "Success", "plugin": "", "reasons": []string{}}
	}
	reasons := append([]string{}, status.Reasons()...)
	return map[string]any{"code": strings.TrimSpace(status.Code().String()), "plugin": status.Plugin(), "reasons": reasons}
}
