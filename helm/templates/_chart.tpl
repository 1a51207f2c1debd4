{{/*
Names, labels, and how another chart's templates find this chart.

Templates for others take the context they are called with (`.`): that of this chart, or that of a chart that depends on
it. In the latter case this chart's own context is among `.Subcharts`, under its name or an alias.
*/}}

{{/* Puts this chart's context into a dictionary: (list CONTEXT DICT) -> DICT.chart */}}
{{- define "toolcall-proxy.find" -}}
{{- $context := index . 0 -}}
{{- $into := index . 1 -}}
{{- if not (kindIs "map" $context) -}}
  {{- fail "toolcall-proxy: call its templates with the chart's own context: {{ include \"toolcall-proxy.sidecar\" . }}" -}}
{{- end -}}
{{- if index ($context.Chart.Annotations | default dict) "toolcall-proxy/library" -}}
  {{- $_ := set $into "chart" $context -}}
{{- else -}}
  {{- range $name, $chart := ($context.Subcharts | default dict) -}}
    {{- if index ($chart.Chart.Annotations | default dict) "toolcall-proxy/library" -}}
      {{- if hasKey $into "chart" -}}
        {{- fail (printf "toolcall-proxy: this chart depends on it under several names (%s, %s): name the one you mean: {{ include \"toolcall-proxy.sidecar\" (index .Subcharts %q) }}" $into.name $name $name) -}}
      {{- end -}}
      {{- $_ := set $into "chart" $chart -}}
      {{- $_ := set $into "name" $name -}}
    {{- end -}}
  {{- end -}}
  {{- if not (hasKey $into "chart") -}}
    {{- fail "toolcall-proxy: no such chart among the dependencies of this one: add it to Chart.yaml and run `helm dependency update`; its values stand under its name, with `shape: library`" -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/* The name of the objects. */}}
{{- define "toolcall-proxy.fullname" -}}
{{- if .Values.fullnameOverride -}}
  {{- .Values.fullnameOverride | trunc 53 | trimSuffix "-" -}}
{{- else -}}
  {{- $name := .Values.nameOverride | default .Chart.Name -}}
  {{- if contains $name .Release.Name -}}
    {{- .Release.Name | trunc 53 | trimSuffix "-" -}}
  {{- else -}}
    {{- printf "%s-%s" .Release.Name $name | trunc 53 | trimSuffix "-" -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/* What selects the pods; never changes in the life of a release. */}}
{{- define "toolcall-proxy.selectorLabels" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default .Chart.Name | trunc 63 }}
app.kubernetes.io/instance: {{ .Release.Name | trunc 63 }}
{{- end }}

{{/* What tells the pod of `helm test` from the proxy's. */}}
{{- define "toolcall-proxy.testLabels" -}}
app.kubernetes.io/name: {{ printf "%s-test" (.Values.nameOverride | default .Chart.Name) | trunc 63 }}
app.kubernetes.io/instance: {{ .Release.Name | trunc 63 }}
app.kubernetes.io/component: test
{{- end }}

{{/* What a pod of any chart bears, so that monitors and policies find its proxy. */}}
{{- define "toolcall-proxy.mark" -}}
toolcall-proxy: {{ include "toolcall-proxy.fullname" . }}
{{- end }}

{{/* The labels of every object. */}}
{{- define "toolcall-proxy.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
{{ include "toolcall-proxy.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: {{ eq .Values.shape "gateway" | ternary "gateway" "sidecar" }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The metadata of an object: (list CONTEXT SUFFIX LABELS ANNOTATIONS NAMESPACE), the last three optional */}}
{{- define "toolcall-proxy.metadata" -}}
{{- $chart := index . 0 -}}
{{- $suffix := index . 1 -}}
{{- $labels := gt (len .) 2 | ternary (index (concat . (list dict dict dict)) 2) dict -}}
{{- $annotations := gt (len .) 3 | ternary (index (concat . (list dict dict dict)) 3) dict -}}
{{- $namespace := gt (len .) 4 | ternary (index (concat . (list "" "" "")) 4) "" -}}
name: {{ include "toolcall-proxy.fullname" $chart }}{{ $suffix }}
namespace: {{ $namespace | default $chart.Release.Namespace }}
labels:
  {{- include "toolcall-proxy.labels" $chart | nindent 2 }}
  {{- with $labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) $annotations $chart.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* An image: (dict "image" VALUES "tag" FALLBACK "where" NAME) */}}
{{- define "toolcall-proxy.image" -}}
{{- $image := .image -}}
{{- if not $image.repository -}}
  {{- fail (printf "toolcall-proxy: %s.repository is empty: name the image, such as registry.example.com/tools/weather" .where) -}}
{{- end -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .tag | default "latest" }}
{{- end -}}
{{- end }}

{{- define "toolcall-proxy.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "toolcall-proxy.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end }}
