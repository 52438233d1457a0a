package main

import (
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/core"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/storage"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	storagevalidation "k8s.io/kubernetes/pkg/apis/storage/validation"
)

// storageMistakes validates what volumes rest on; false for another kind.
func storageMistakes(internal runtime.Object) (field.ErrorList, bool) {
	switch it := internal.(type) {
	case *core.PersistentVolumeClaim:
		options := corevalidation.ValidationOptionsForPersistentVolumeClaim(it, nil)
		return corevalidation.ValidatePersistentVolumeClaim(it, options), true
	case *core.PersistentVolume:
		options := corevalidation.ValidationOptionsForPersistentVolume(it, nil)
		return corevalidation.ValidatePersistentVolume(it, options), true
	case *storage.StorageClass:
		return storagevalidation.ValidateStorageClass(it), true
	case *storage.CSINode:
		return withDefaults(storagevalidation.ValidateCSINode, it), true
	case *storage.CSIDriver:
		return storagevalidation.ValidateCSIDriver(it), true
	case *storage.VolumeAttachment:
		return storagevalidation.ValidateVolumeAttachment(it), true
	case *storage.CSIStorageCapacity:
		return storagevalidation.ValidateCSIStorageCapacity(it, storagevalidation.CSIStorageCapacityValidateOptions{}), true
	}
	return nil, false
}

// withDefaults calls a function that has a second argument in some minors only.
func withDefaults(validate any, object runtime.Object) field.ErrorList {
	called := reflect.ValueOf(validate)
	arguments := []reflect.Value{reflect.ValueOf(object)}
	for index := 1; index < called.Type().NumIn(); index++ {
		arguments = append(arguments, reflect.Zero(called.Type().In(index)))
	}
	return called.Call(arguments)[0].Interface().(field.ErrorList)
}
