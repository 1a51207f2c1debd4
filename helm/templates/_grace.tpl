{{/*
How a pod ends without losing a call, as arithmetic that fails with its numbers (docs/kubernetes.md, "Ending a pod").

    0                         D                    S                      S + L    T
    |--- proxy takes calls ---|-- calls finish --->|                                |
    |--- tool kept from its SIGTERM (preStop) -----|--- its last calls ---|-- 5 s --|

  D  drain.seconds              the proxy goes on taking calls, not ready any more
  L  drain.longestCallSeconds   the longest that one call may take
  S  drain.toolSleepSeconds     the tool's preStop; at least D + 2, for hooks do not start at the same moment
  T  terminationGracePeriodSeconds   at least S + L + 5; without a tool D + L + 10: after D + L the proxy gives
                                     what hangs another 5 s, and then closes its connections. Where none is
                                     written, at least drain.leastGraceSeconds: a longer timeout in the config
                                     then changes nothing of the pod, and a pod that is done ends at once anyway
*/}}

{{/* A time of the config in whole seconds, rounded up; 0 where it is a reference (${NAME}) or nothing. */}}
{{- define "toolcall-proxy.seconds" -}}
{{- $text := . | toString -}}
{{- if regexMatch "^[0-9]+([.][0-9]+)?(e[+][0-9]+)?$" $text -}}
  {{- ceil (float64 $text) | int64 -}}
{{- else if regexMatch "^[0-9]+([.][0-9]+)?(ms|s|m|h)$" $text -}}
  {{- $unit := regexFind "[a-z]+$" $text -}}
  {{- $each := dict "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0 -}}
  {{- ceil (mulf (float64 (trimSuffix $unit $text)) (get $each $unit)) | int64 -}}
{{- else -}}0
{{- end -}}
{{- end }}

{{/*
The longest that a call may take by the config: (list CONFIG DICT) -> DICT.seconds, DICT.where. 30 s where upstreams say
nothing; 0 and nowhere without a config.
*/}}
{{- define "toolcall-proxy.longest" -}}
{{- $config := index . 0 -}}
{{- $into := index . 1 -}}
{{- $times := dict -}}
{{- range $name, $upstream := ($config.upstreams | default dict) -}}
  {{- if kindIs "map" $upstream -}}
    {{- $timeouts := $upstream.timeouts | default dict -}}
    {{- $_ := set $times (printf "upstreams.%s.timeouts.response" $name) (dig "response" "30s" $timeouts) -}}
  {{- end -}}
{{- end -}}
{{- $policies := dict "defaults" ($config.defaults | default dict) -}}
{{- range $name, $tool := ($config.tools | default dict) -}}
  {{- $_ := set $policies (printf "tools.%s" $name) $tool -}}
{{- end -}}
{{- range $name, $route := ($config.routes | default list) -}}
  {{- $_ := set $policies (printf "routes.%v" $name) $route -}}
{{- end -}}
{{- range $name, $policy := $policies -}}
  {{- if kindIs "map" $policy -}}
    {{- with $policy.timeout }}{{ $_ := set $times (printf "%s.timeout" $name) . }}{{ end -}}
    {{- with dig "resend" "deadline" "" $policy }}{{ $_ := set $times (printf "%s.resend.deadline" $name) . }}{{ end -}}
  {{- end -}}
{{- end -}}
{{- $_ := set $into "seconds" 0 -}}
{{- range $where, $time := $times -}}
  {{- $seconds := include "toolcall-proxy.seconds" $time | int -}}
  {{- if gt $seconds $into.seconds -}}
    {{- $_ := set $into "seconds" $seconds -}}
    {{- $_ := set $into "where" $where -}}
  {{- end -}}
{{- end -}}
{{- if and (not $into.where) $config -}}
  {{- $_ := set $into "seconds" 30 -}}
  {{- $_ := set $into "where" "upstreams.NAME.timeouts.response" -}}
{{- end -}}
{{- with $config.correction -}}
  {{- $_ := set $into "seconds" (int (add $into.seconds (include "toolcall-proxy.seconds" (dig "deadline" "20s" .)))) -}}
  {{- $_ := set $into "where" (printf "%s and correction.deadline" $into.where) -}}
{{- end -}}
{{- end }}

{{/* The numbers into a dictionary: (list CHART DICT) -> DICT.drain, .call, .sleep, .period. Fails where they do not add up. */}}
{{- define "toolcall-proxy.grace" -}}
{{- $chart := index . 0 -}}
{{- $into := index . 1 -}}
{{- $drain := int $chart.Values.drain.seconds -}}
{{- $longest := dict -}}
{{- include "toolcall-proxy.longest" (list $chart.Values.config $longest) -}}
{{- $call := $longest.seconds | default 30 | int -}}
{{- with $chart.Values.drain.longestCallSeconds -}}
  {{- if and $longest.where (lt (int .) $call) -}}
    {{- fail (printf "toolcall-proxy: drain.longestCallSeconds is %d, but config.%s lets a call take %d s: raise the one or lower the other" (int .) $longest.where $call) -}}
  {{- end -}}
  {{- $call = int . -}}
{{- end -}}
{{- $sleep := $chart.Values.drain.toolSleepSeconds | default (add $drain 5) | int -}}
{{- $gateway := eq $chart.Values.shape "gateway" -}}
{{- if and (not $gateway) (lt $sleep (int (add $drain 2))) -}}
  {{- fail (printf "toolcall-proxy: drain.toolSleepSeconds is %d, but the proxy goes on taking calls for %d s (drain.seconds) and hooks may start 2 s apart: the tool would be gone before the calls are. Set it to %d or more, or leave it out" $sleep $drain (int (add $drain 2))) -}}
{{- end -}}
{{- $wait := $gateway | ternary $drain $sleep | int -}}
{{- $end := $gateway | ternary 10 5 | int -}}
{{- $least := int (add $wait $call $end) -}}
{{- $period := $chart.Values.terminationGracePeriodSeconds | default (max $least $chart.Values.drain.leastGraceSeconds) | int -}}
{{- if lt $period $least -}}
  {{- $first := $gateway | ternary (printf "the proxy goes on taking calls for %d s (drain.seconds)" $drain) (printf "the tool's preStop sleeps %d s (drain.toolSleepSeconds)" $sleep) -}}
  {{- $second := printf "the longest call takes %d s (%s)" $call (empty $chart.Values.drain.longestCallSeconds | ternary (printf "config.%s" ($longest.where | default "upstreams")) "drain.longestCallSeconds") -}}
  {{- fail (printf "toolcall-proxy: terminationGracePeriodSeconds is %d, but %s, then %s, and the proxy needs %d s to end: %d + %d + %d = %d. Set it to %d or more, or leave it out" $period $first $second $end $wait $call $end $least $least) -}}
{{- end -}}
{{- $_ := set $into "drain" $drain -}}
{{- $_ := set $into "call" $call -}}
{{- $_ := set $into "sleep" $sleep -}}
{{- $_ := set $into "period" $period -}}
{{- end }}

{{/* For any pod: `terminationGracePeriodSeconds: {{ include "toolcall-proxy.terminationGracePeriodSeconds" . }}` */}}
{{- define "toolcall-proxy.terminationGracePeriodSeconds" -}}
{{- $found := dict -}}
{{- include "toolcall-proxy.find" (list . $found) -}}
{{- $grace := dict -}}
{{- include "toolcall-proxy.grace" (list $found.chart $grace) -}}
{{- $grace.period -}}
{{- end }}

{{/* For the tool's container: what keeps it from its SIGTERM while the proxy still takes calls. */}}
{{- define "toolcall-proxy.toolLifecycle" -}}
{{- $found := dict -}}
{{- include "toolcall-proxy.find" (list . $found) -}}
{{- $grace := dict -}}
{{- include "toolcall-proxy.grace" (list $found.chart $grace) -}}
preStop:
{{- if semverCompare ">=1.30.0-0" $found.chart.Capabilities.KubeVersion.Version }}
  sleep:
    seconds: {{ $grace.sleep }}
{{- else }}
  exec:
    command: [sleep, {{ $grace.sleep | toString | quote }}]
{{- end }}
{{- end }}
